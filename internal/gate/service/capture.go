package service

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Captured is a captured packet: one line of a stream.
type Captured struct {
	Time    time.Time   `json:"time"`
	Iface   string      `json:"iface"`
	Netns   string      `json:"netns,omitempty"`
	Hook    string      `json:"hook"`             // xdp or tc
	Verdict string      `json:"verdict"`          // drop or pass
	Reason  string      `json:"reason,omitempty"` // of a drop, as drops.verdict of flow records
	Rule    *CaptureRef `json:"rule,omitempty"`   // that decided
	Sampled *CaptureRef `json:"sampled_by,omitempty"`

	Length  uint32 `json:"length"`  // of the frame
	Packets uint32 `json:"packets"` // that the frame stands for
	Queue   uint32 `json:"queue"`
	NoLink  bool   `json:"no_link,omitempty"` // data begins with the IP header

	Received       uint64      `json:"received_ns,omitempty"` // by the clock of the network card
	ReceivedSource string      `json:"received_source,omitempty"`
	Hash           uint32      `json:"hash,omitempty"`
	HashL4         bool        `json:"hash_l4,omitempty"` // ports are in it
	HashSource     string      `json:"hash_source,omitempty"`
	Tag            *CaptureTag `json:"vlan_tag,omitempty"`

	Data   []byte `json:"data"`             // of the frame, its beginning, in base64
	Lost   uint64 `json:"lost"`             // packets that were not captured: running total
	Missed uint64 `json:"missed,omitempty"` // before this one, which the reader was too slow for
}

// CaptureRef is a rule.
type CaptureRef struct {
	ID   uint32 `json:"id"`
	Text string `json:"text,omitempty"` // empty: it is gone
}

// CaptureTag is a VLAN tag that is not in the frame.
type CaptureTag struct {
	Proto  uint16 `json:"proto"`
	TCI    uint16 `json:"tci"`
	Source string `json:"source"`
}

// Line implements api.Event.
func (c *Captured) Line(missed uint64) ([]byte, error) {
	sent := *c
	sent.Missed = missed
	return json.Marshal(&sent)
}

// The streams of captured packets.
const (
	DroppedPath = "/api/v1/capture/dropped"
	SampledPath = "/api/v1/capture/sampled"
	NotablePath = "/api/v1/capture/notable"
	AllPath     = "/api/v1/capture/all"
)

// captures are the streams, and what is in them.
var captures = []struct {
	path, doc string
	what      gate.What
}{
	{DroppedPath, "Packets that rules drop", gate.WhatDropped},
	{SampledPath, "Packets that rules sample", gate.WhatSampled},
	{NotablePath, "Packets that rules drop or sample", gate.WhatDropped | gate.WhatSampled},
	{AllPath, "All packets that meet the rules", gate.WhatDropped | gate.WhatSampled | gate.WhatPassed},
}

// captureStreams are for root and the agent's user only: they have what users send.
func captureStreams() (list []api.Stream) {
	for _, c := range captures {
		list = append(list, api.Stream{
			Path: c.path, Private: true, Missing: rulesPage.Missing,
			Doc: c.doc + ", with their verdict, as `waymark capture` reads them; on the unix socket, as root or the agent's user",
		})
	}
	return list
}

// captureEvents emit them.
func (s *service) captureEvents() map[string]func(context.Context, func(api.Event)) error {
	all := map[string]func(context.Context, func(api.Event)) error{}
	for _, c := range captures {
		all[c.path] = func(ctx context.Context, emit func(api.Event)) error {
			return s.gate.Capture(ctx, c.what, func(p *gate.Packet) { emit(s.captured(p)) })
		}
	}
	return all
}

func (s *service) captured(p *gate.Packet) *Captured {
	c := &Captured{
		Time: p.Time.UTC(), Hook: "xdp", Verdict: "pass", Rule: captureRef(p.Packet.Decided, p.Decided), Sampled: captureRef(p.Packet.Sampled, p.Sampled),
		Length: p.Length, Packets: p.Packets, Queue: p.Queue, NoLink: p.NoLink != 0,
		Received: p.Received, ReceivedSource: engine.HintSources[p.ReceivedSource],
		Hash: p.Hash, HashL4: p.HashL4 != 0, HashSource: engine.HintSources[p.HashSource],
		Data: p.Data, Lost: p.Lost,
	}
	c.Iface, c.Netns = s.deps.IfaceName(flow.Iface(p.Iface))
	if p.Hook == engine.HookTC {
		c.Hook = "tc"
	}
	if p.Dropped() {
		c.Verdict, c.Reason = "drop", p.Verdict().String()
	}
	if p.TagProto != 0 {
		c.Tag = &CaptureTag{p.TagProto, p.TagTci, engine.HintSources[p.TagSource]}
	}
	return c
}

func captureRef(id uint32, r *rules.Rule) *CaptureRef {
	if id == 0 {
		return nil
	}
	ref := &CaptureRef{ID: id}
	if r != nil {
		ref.Text = r.Text
	}
	return ref
}

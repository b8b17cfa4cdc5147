package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/capfile"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/obs"
)

// captureFile is a pcapng file. What was written of it can be read at any time.
type captureFile struct {
	ng     *capfile.Writer
	file   io.WriteCloser
	snap   uint32
	filter string
	began  time.Time

	ifaces []captureIface
	packet int    // number of the last
	lost   uint64 // as of the last
	known  bool
}

// captureIface is an interface of the file.
type captureIface struct {
	name   string
	noLink bool
	wrote  uint64
	lost   uint64
}

// newCaptureFile writes the head, with the interfaces of the gate, so that readers can begin.
func newCaptureFile(ctx context.Context, c *captureCommand, file io.WriteCloser) (*captureFile, error) {
	f := &captureFile{file: file, snap: c.snap, filter: c.text, began: time.Now()}
	s, err := c.agent.client().Status(ctx)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	names := []string{}
	if g := gate.StatusOf(&s); g != nil {
		for _, i := range g.Interfaces {
			names = append(names, obs.Place(i.Netns, i.Name))
		}
	}
	if len(names) == 0 {
		return nil, errors.Join(errors.New("capture: the gate of the agent has no interface: name some in gate.interfaces and interfaces"), file.Close())
	}
	if f.ng, err = capfile.NewWriter(file, "waymark "+readVersion().Version); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, name := range names {
		if _, err := f.iface(name, false); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	return f, nil
}

// iface is the number of an interface, which is added when it is new.
func (f *captureFile) iface(name string, noLink bool) (int, error) {
	for i := range f.ifaces {
		if f.ifaces[i].name == name && f.ifaces[i].noLink == noLink {
			return i, nil
		}
	}
	one := capfile.Interface{Name: name, Filter: f.filter, Link: capfile.LinkEthernet, Snap: f.snap}
	if noLink {
		one.Link = capfile.LinkRaw
	}
	f.ifaces = append(f.ifaces, captureIface{name: name, noLink: noLink})
	return f.ng.Add(one)
}

// Verdicts of the hooks, as the kernel has them.
const (
	xdpDrop = 1
	xdpPass = 2
	tcShot  = 2
)

// tcUnspec is TC_ACT_UNSPEC.
var tcUnspec int64 = -1

func captureVerdict(p *gate.Captured) capfile.Verdict {
	dropped := p.Verdict == "drop"
	v := capfile.Verdict{Kind: capfile.VerdictXDP, Value: xdpPass}
	switch {
	case p.Hook == "tc" && dropped:
		v = capfile.Verdict{Kind: capfile.VerdictTC, Value: tcShot}
	case p.Hook == "tc":
		v = capfile.Verdict{Kind: capfile.VerdictTC, Value: uint64(tcUnspec)}
	case dropped:
		v.Value = xdpDrop
	}
	return v
}

// write adds a packet.
func (f *captureFile) write(p *gate.Captured) error {
	i, err := f.iface(obs.Place(p.Netns, p.Iface), p.NoLink)
	if err != nil {
		return err
	}
	frame, more := frameOf(p), len(frameOf(p))-len(p.Data)
	frame = frame[:min(len(frame), int(f.snap))]
	lost := p.Missed
	if f.known {
		lost += p.Lost - f.lost
	}
	f.lost, f.known = p.Lost, true
	f.packet++
	f.ifaces[i].wrote++
	f.ifaces[i].lost += lost
	return f.ng.Write(&capfile.Packet{
		Frame: capfile.Frame{
			Number: f.packet, Time: p.Time, Data: frame, Length: max(int(p.Length)+more, len(frame)), Iface: i, Direction: capfile.Inbound,
		},
		Comments: captureComments(p), Queue: p.Queue, Lost: lost, Verdict: captureVerdict(p),
	})
}

// captureComments are what is known of a packet besides its bytes.
func captureComments(p *gate.Captured) []string {
	verdict := "verdict " + p.Verdict
	if p.Reason != "" {
		verdict += ", reason " + p.Reason
	}
	for _, r := range []struct {
		what string
		rule *gate.CaptureRef
	}{{"rule", p.Rule}, {"sampled by rule", p.Sampled}} {
		if r.rule != nil {
			verdict += strings.TrimSuffix(fmt.Sprintf(", %s %d: %s", r.what, r.rule.ID, r.rule.Text), ": ")
		}
	}
	if p.Rule == nil {
		verdict += ", no rule decided"
	}
	var hints []string
	if p.Received != 0 {
		hints = append(hints, fmt.Sprintf("received at %d ns (%s)", p.Received, p.ReceivedSource))
	}
	if p.HashSource != "" {
		hash := fmt.Sprintf("hash %#08x (%s)", p.Hash, p.HashSource)
		if p.HashL4 {
			hash += " with ports"
		}
		hints = append(hints, hash)
	}
	if p.Tag != nil {
		hints = append(hints, fmt.Sprintf("VLAN %d (%s)", p.Tag.TCI&0xfff, p.Tag.Source))
	}
	if p.Packets > 1 {
		hints = append(hints, fmt.Sprintf("burst of %d packets", p.Packets))
	}
	if len(hints) == 0 {
		return []string{verdict}
	}
	return []string{verdict, strings.Join(hints, ", ")}
}

// frameOf is the frame as it was on the wire: with a VLAN tag that was taken out of it.
func frameOf(p *gate.Captured) []byte {
	if p.Tag == nil || p.NoLink {
		return p.Data
	}
	return withTag(p.Data, p.Tag.Proto, p.Tag.TCI)
}

// finish adds what was captured and lost per interface. Packets that were lost behind the last one count with the first
// interface: nobody knows theirs.
func (f *captureFile) finish(lost uint64) error {
	for i := range f.ifaces {
		lost -= min(f.ifaces[i].lost, lost)
	}
	f.ifaces[0].lost += lost
	now := time.Now()
	for i, one := range f.ifaces {
		if err := f.ng.End(i, capfile.Statistics{From: f.began, To: now, Received: one.wrote + one.lost, Lost: one.lost}); err != nil {
			return err
		}
	}
	return nil
}

func (f *captureFile) close() error { return f.file.Close() }

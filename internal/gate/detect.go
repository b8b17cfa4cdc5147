package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/rules"
)

// DetectWindow is the time in which packets of a source are counted together.
const DetectWindow = time.Duration(1) << abiGateDetectSizeGATE_WINDOW_SHIFT

// sketchSize is the cells of all sketches.
const sketchSize = uint32(abiGateDetectSizeGATE_WATCHES) * uint32(abiGateDetectSizeGATE_SKETCH_ROWS) << abiGateDetectSizeGATE_SKETCH_SHIFT

// maxWatches is how many detect rules a rule set may have.
const maxWatches = int(abiGateDetectSizeGATE_WATCHES)

// Candidate is a source that passed the rate of a detect rule.
type Candidate struct {
	Time    time.Time
	Rule    uint32 // id
	Source  netip.Prefix
	Amount  uint64        // packets or bytes in this window, an estimate
	Bound   uint64        // by which it may be too high; it passed the rate nevertheless
	Total   uint64        // of all sources that the rule matched
	Elapsed time.Duration // of the window
	Packet  string        // that passed the rate, as rules describe packets
}

// Window is what a detect rule saw in the last whole window.
type Window struct {
	Rule    uint32
	Number  uint64
	Packets uint64
	Sources uint64 // an estimate; no more than some 150,000 are distinguished
	Lost    uint64 // candidates that were not reported
}

// Candidates emits sources above the rate of a rule until ctx ends.
func (g *Gate) Candidates(ctx context.Context, emit func(*Candidate)) error {
	var reader *datapath.Ringbuf
	if err := g.do(func() (err error) {
		reader, err = datapath.OpenRingbuf(g.maps["gate_candidates"], 1)
		return err
	}); err != nil {
		return fmt.Errorf("ring of sources above a rate: %w", err)
	}
	defer reader.Close()
	for {
		more, err := reader.Wait(ctx)
		if err == nil && more {
			err = reader.Read(func(raw []byte) error {
				if len(raw) < int(unsafe.Sizeof(abiGateCandidate{})) {
					return fmt.Errorf("element of %d bytes", len(raw))
				}
				c, err := candidateOf((*abiGateCandidate)(unsafe.Pointer(&raw[0])))
				if err == nil {
					emit(c)
				}
				return err
			})
		}
		if err != nil {
			return fmt.Errorf("ring of sources above a rate: %w", err)
		}
		if !more {
			return nil
		}
	}
}

func candidateOf(raw *abiGateCandidate) (*Candidate, error) {
	now, err := datapath.Now()
	if err != nil {
		return nil, err
	}
	source, err := addressOf(raw.SrcHigh, raw.SrcLow, raw.Ipv6).Prefix(int(raw.Bits))
	if err != nil {
		return nil, err
	}
	return &Candidate{
		Time: time.Unix(0, int64(raw.Time)+now.Wall-now.Mono).UTC(), Rule: raw.Rule, Source: source,
		Amount: raw.Amount, Bound: raw.Bound, Total: raw.Total,
		Elapsed: max(time.Duration(raw.Time)&(DetectWindow-1), time.Millisecond), Packet: packetText(raw),
	}, nil
}

func addressOf(high, low uint64, ipv6 uint8) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], high)
	binary.BigEndian.PutUint64(b[8:], low)
	if ipv6 == 0 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	return netip.AddrFrom16(b)
}

func packetText(raw *abiGateCandidate) string {
	text := fmt.Sprintf("src %s dst %s", addressOf(raw.SrcHigh, raw.SrcLow, raw.Ipv6), addressOf(raw.DstHigh, raw.DstLow, raw.Ipv6))
	if proto := uint32(raw.Head) % uint32(protos); proto < 256 {
		text += fmt.Sprintf(" proto %d", proto)
	}
	if raw.Ports != 0 {
		text += fmt.Sprintf(" src port %d dst port %d", raw.Sport, raw.Dport)
	}
	return fmt.Sprintf("%s len %d", text, raw.Length)
}

// protos is by how many the numbers of two states of a packet differ (enum gate_head).
const protos = 257

// Windows are those of the detect rules in effect, in order.
func (g *Gate) Windows() (list []Window, err error) {
	err = g.do(func() error {
		for i, r := range watchesOf(g.table.Rules) {
			var w abiGateWatch
			if err := g.maps["gate_watches"].Lookup(uint32(i), &w); err != nil {
				return fmt.Errorf("reading what a detect rule saw: %w", err)
			}
			list = append(list, Window{r.ID, w.Before.Number, w.Before.Packets, sourcesOf(w.Before.Fresh), w.Before.Lost})
		}
		return nil
	})
	return list, err
}

func watchesOf(all []*rules.Rule) (list []*rules.Rule) {
	for _, r := range all {
		if r.Action == rules.ActionDetect {
			list = append(list, r)
		}
	}
	return list
}

// Detect has rules in front of all others, whatever is applied. It is called before Apply.
func (g *Gate) Detect(list []*rules.Rule) { g.detect = list }

// withDetect is a rule set with what Detect has put in front.
func (g *Gate) withDetect(rs *rules.Ruleset) *rules.Ruleset {
	out := &rules.Ruleset{Sets: rs.Sets}
	for _, r := range g.detect {
		if !slices.ContainsFunc(rs.Rules, func(other *rules.Rule) bool { return other.ID == r.ID }) {
			out.Rules = append(out.Rules, r)
		}
	}
	out.Rules = append(out.Rules, rs.Rules...)
	return out
}

// HostAddresses are the addresses and gateways of the host, which detection never bans.
func (g *Gate) HostAddresses() (list []netip.Addr, err error) {
	err = g.do(func() error {
		for _, p := range g.ifaces {
			if p.do == nil {
				continue
			}
			if err := p.do(func() error { return hostAddresses(&list) }); err != nil {
				return err
			}
		}
		return nil
	})
	return list, err
}

func hostAddresses(into *[]netip.Addr) error {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	routes, routesErr := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err := errors.Join(err, routesErr); err != nil {
		return fmt.Errorf("addresses and gateways of the host: %w", err)
	}
	add := func(ip []byte) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			*into = append(*into, a.Unmap())
		}
	}
	for _, a := range addrs {
		add(a.IP)
	}
	for _, r := range routes {
		add(r.Gw)
		for _, hop := range r.MultiPath {
			add(hop.Gw)
		}
	}
	return nil
}

// Check reports rules that the gate cannot apply.
func Check(rs *rules.Ruleset) error {
	if n := len(watchesOf(rs.Rules)); n > maxWatches {
		return fmt.Errorf("the rules have %d rates to detect, and %d fit: remove some of the detect rules, or of gate.detect.watch", n, maxWatches)
	}
	return nil
}

// RuleText is the text of a rule in effect; empty: there is no such rule.
func (g *Gate) RuleText(id uint32) (text string) {
	_ = g.do(func() error { // closed: there is none
		for _, r := range g.table.Rules {
			if r.ID == id {
				text = r.Text
			}
		}
		return nil
	})
	return text
}

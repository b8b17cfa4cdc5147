package datapath

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/datapath/parsetest"
	"github.com/waymark-net/waymark/test/packet"
)

const (
	etherMin = 14 // bytes that a test run of XDP wants
	// linearMax is what a test run puts into the first buffer: a page less the
	// headroom and struct skb_shared_info.
	linearMax = 4096 - 256 - 320
)

// xdpMD is struct xdp_md.
type xdpMD struct{ Data, DataEnd, DataMeta, IngressIfindex, RxQueueIndex, EgressIfindex uint32 }

// xdpHook is a program at XDP and how it gets its frames.
type xdpHook struct {
	name, program string
	multi         bool // more than one buffer
	linear        int  // bytes of the first buffer; 0: as many as fit

	ran, cuts   int
	impossible  notRun
	unsupported string // why nothing runs, if so
}

// cannot says why a frame cannot be at the hook, if so.
func (h *xdpHook) cannot(f packet.Frame) string {
	switch {
	case f.GSO.Segments > 0:
		return "no GSO metadata at XDP"
	case f.Tag != nil:
		return "no offloaded VLAN tag at XDP"
	case len(f.Data) < etherMin:
		return "shorter than a test run takes"
	case len(f.Data) > linearMax && !h.multi:
		return "longer than one buffer"
	case len(f.Data) > 65535:
		return "longer than a test run takes"
	}
	return ""
}

func (h *xdpHook) cannotRun(c packet.Case) (why string) {
	why = h.unsupported
	for _, f := range c.Frames {
		why = max(why, h.cannot(f))
	}
	return why
}

func (h *xdpHook) run(t testing.TB, p *ebpf.Program, data []byte) error {
	t.Helper()
	ctx := xdpMD{DataEnd: uint32(len(data))}
	if h.linear > 0 && len(data) > h.linear {
		ctx.DataEnd = uint32(h.linear)
	}
	opts := ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)+256), Context: &ctx}
	verdict, err := p.Run(&opts)
	if err != nil {
		return err
	}
	const pass = 2
	if verdict != pass {
		t.Errorf("verdict %d, want XDP_PASS", verdict)
	}
	if !bytes.Equal(opts.DataOut, data) {
		t.Errorf("the frame changed:\n%s", cmp.Diff(data, opts.DataOut))
	}
	return nil
}

// TestCasesAtXDP: the packets of the table, whole and cut at every length, give
// at XDP what they give at tc; in one buffer, in several, and with headers beyond
// the first one. Those that XDP has no such frames of are listed.
func TestCasesAtXDP(t *testing.T) {
	defer datapathtest.OnOneProcessor(t)()
	hooks := []*xdpHook{
		{name: "one buffer", program: "test_xdp", impossible: notRun{}},
		{name: "several buffers", program: "test_xdp_frags", multi: true, impossible: notRun{}},
		{name: "headers in the second buffer", program: "test_xdp_frags", multi: true, linear: 24, impossible: notRun{}},
	}
	if kernelTypes, err := btf.LoadKernelSpec(); err != nil {
		t.Fatal(err)
	} else if kernelTypes.TypeByName("bpf_xdp_pull_data", new(*btf.Func)) != nil {
		hooks[2].unsupported = "kernel before 6.18: nothing pulls headers into the first buffer"
	}
	for tunnels, cases := range casesByTunnels() {
		// What it takes is the verification of programs: each is loaded once.
		probe := xdpProbe{Datapath: load(t, Config{MaxEntries: 1024, Tunnels: tunnelsOf(tunnels)})}
		for _, h := range hooks {
			for _, c := range cases {
				probe.try(t, h, c)
			}
		}
	}
	for _, h := range hooks {
		t.Logf("%s: %d cases and %d cuts of them ran", h.name, h.ran, h.cuts)
		h.impossible.report(t)
	}
}

// xdpProbe counts at XDP.
type xdpProbe struct {
	*Datapath
	programs map[string]*ebpf.Program
	reasons  reasonCounter
}

// try sends a case and then its cuts, or notes why the hook has no such frames.
func (p *xdpProbe) try(t *testing.T, h *xdpHook, c packet.Case) {
	if why := h.cannotRun(c); why != "" {
		h.impossible.add(h.name+": "+why, c.Name)
		return
	}
	h.ran++
	if diff := p.send(t, h, c); diff != "" {
		t.Errorf("%s: %s", h.name, diff)
	}
	cuts := slices.DeleteFunc(packet.Truncations(c), func(c packet.Case) bool { return h.cannotRun(c) != "" })
	h.cuts += len(cuts)
	if len(cuts) == 0 || p.send(t, h, cuts...) == "" {
		return
	}
	for _, c := range cuts { // which of them?
		if diff := p.send(t, h, c); diff != "" {
			t.Errorf("%s: %s", h.name, diff)
		}
	}
}

// send returns how what the probe has of cases differs from what it should have.
func (p *xdpProbe) send(t *testing.T, h *xdpHook, cases ...packet.Case) string {
	for _, c := range cases {
		forget(t, p.maps["fragments"])
		for _, f := range c.Frames {
			err := h.run(t, p.program(t, h.program, f.L3), f.Data)
			if errors.Is(err, unix.EINVAL) && h.linear > 0 {
				h.unsupported = "kernel before 6.18: a test run cannot set the size of the first buffer"
				return ""
			}
			if err != nil {
				t.Fatalf("%s: %s: running %d bytes: %v", h.name, c.Name, len(f.Data), err)
			}
		}
	}
	return diffCase(t, p.Datapath, together(cases), &p.reasons)
}

// program loads a program over the maps of the probe.
func (p *xdpProbe) program(t *testing.T, name string, noLink bool) *ebpf.Program {
	key := fmt.Sprint(name, noLink)
	if loaded := p.programs[key]; loaded != nil {
		return loaded
	}
	coll, err := p.Alongside(parsetest.LoadXDP, func(spec *ebpf.CollectionSpec) error {
		maps.DeleteFunc(spec.Programs, func(n string, _ *ebpf.ProgramSpec) bool { return n != name })
		if !noLink {
			return nil
		}
		v := spec.Variables["cfg_features"]
		var features uint32
		return errors.Join(v.Get(&features), v.Set(features|uint32(tcFeatureFEATURE_NO_LINK)))
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	if p.programs == nil {
		p.programs = map[string]*ebpf.Program{}
	}
	p.programs[key] = coll.Programs[name]
	return p.programs[key]
}

// together is the case of all frames, one after the other.
func together(cases []packet.Case) packet.Case {
	if len(cases) == 1 {
		return cases[0]
	}
	all := packet.Case{Name: cases[0].Name + " to " + cases[len(cases)-1].Name, Uncounted: map[string]packet.Amount{}}
	for _, c := range cases {
		all.Flows = append(all.Flows, c.Flows...)
		for reason, a := range c.Uncounted {
			sum := all.Uncounted[reason]
			all.Uncounted[reason] = packet.Amount{Packets: sum.Packets + a.Packets, Bytes: sum.Bytes + a.Bytes}
		}
	}
	all.Flows = merged(all.Flows)
	return all
}

package forward

import (
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/test/soak"
)

// traces are what packets leave behind.
func (r *router) traces(t *testing.T) (packets [results]uint64, fresh []uint32, flows int) {
	t.Helper()
	if err := r.dp.Drain(func(d *flow.Delta) {
		if d.Proto != packet.ProtoICMPv6 { // the kernel's own
			flows++
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.do(func() error {
		fresh = slices.Clone(r.memory.Values[0].Fresh[:])
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return r.portOf(t, 0).Packets, fresh, flows
}

// TestExplain: what a dry run says of random frames is what becomes of them when they arrive, by its reason, way and bytes; and
// it leaves nothing behind.
func TestExplain(t *testing.T) {
	tw := newTwin(t, scenes[0])
	h := *tw.router
	for _, name := range twinPort {
		h.Interfaces = append(h.Interfaces, lab.Interface{Name: name})
	}
	r := newRouter(t, &h, Config{})
	follow(t, r)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 2))
	const part = 200
	done := 0
	for range soak.Times(2000, 100_000) / part {
		var frames [][]byte
		var asked []datapath.MadeUp
		for range part {
			frames = append(frames, scenes[0].randomFrame(random))
		}
		frames = append(frames, scenes[0].last(0), scenes[0].last(1))
		for _, f := range frames {
			asked = append(asked, datapath.MadeUp{Data: f})
		}
		before, fresh, _ := r.traces(t)
		all, err := r.Explain("in", asked)
		if err != nil {
			t.Fatal(err)
		}
		after, still, flows := r.traces(t)
		if before != after || !slices.Equal(fresh, still) || flows != 0 {
			t.Fatalf("dry runs left %d flows, counts before\n%v\nand after\n%v", flows, before, after)
		}
		var says [results]uint64
		leaves := [2]map[string]int{{}, {}}
		for i, e := range all {
			if len(e.Decisions) != 1 || e.Decisions[0].Stage != "forward" {
				t.Fatalf("%+v", e)
			}
			d := e.Decisions[0]
			result := slices.IndexFunc(Results[:], func(r Result) bool { return r.Name == d.Result })
			says[result]++
			if (result == 0) != (d.To == "interface") {
				t.Errorf("%+v", d)
			}
			if out := slices.Index(twinPort, d.Out) - 1; result == 0 && i < part {
				leaves[out][string(e.Frame)]++
			}
		}
		if err := tw.sender.Send(frames...); err != nil {
			t.Fatal(err)
		}
		got := tw.left(t)
		is, _, _ := r.traces(t)
		for i := range is {
			is[i] -= after[i]
		}
		// One packet to each neighbour in some seconds is the kernel's, as the answer says.
		refreshed := abiForwardResultFORWARD_REFRESH
		is[0], is[refreshed] = is[0]+is[refreshed], 0
		if is != says {
			t.Errorf("seed %d: dry runs say %v, and it was %v", seed, says, is)
		}
		for out, frames := range leaves {
			for f, n := range frames {
				done += n
				if got[out][f] < n {
					t.Errorf("seed %d: %d frames of %x should leave by %s, and %d did", seed, n, f[:min(len(f), 60)], twinPort[1+out], got[out][f])
				}
			}
		}
	}
	if done < part/2 {
		t.Errorf("%d frames were to leave", done)
	}
}

// TestExplainSays: what is known of the way is in the answer, and what cannot be asked is refused.
func TestExplainSays(t *testing.T) {
	l := chain(t, 1500, false)
	alpha, athos, beta := l.Host("alpha"), l.Host("athos"), l.Host("beta")
	r := newRouter(t, athos, Config{})
	follow(t, r)
	transfer(t, alpha, beta, "tcp4", 1) // now neighbours are known
	in := athos.Interfaces[0].Name
	ask := func(frame []byte) datapath.Decision {
		t.Helper()
		all, err := r.Explain(in, []datapath.MadeUp{{Data: frame, ToInterface: true}})
		if err != nil {
			t.Fatal(err)
		}
		return all[0].Decisions[0]
	}
	frame := func(to string, size int) []byte {
		return packet.Eth().IPv4(alpha.Addr4().String(), to).UDP(1, 2).Payload(size).Bytes()
	}
	d := ask(frame(beta.Addr4().String(), 10))
	if d.Result != "forwarded" || d.Out != athos.Interfaces[1].Name || d.MTU != 1500 || d.NextHop != l.Host("porthos").Interfaces[0].Addr4.Addr() {
		t.Errorf("%+v", d)
	}
	if d := ask(frame(athos.Addr4().String(), 10)); d.Result != "not_forwarded" || d.To != datapath.ToKernel || d.Out != "" {
		t.Errorf("%+v", d)
	}
	if d := ask(frame(beta.Addr4().String(), 1480)); d.Result != "too_big" || d.MTU != 1500 {
		t.Errorf("%+v", d)
	}
	r.forgedNote(t, alpha, beta)
	run(t, athos, "nft add table inet wm")
	run(t, athos, "nft add chain inet wm c { type filter hook forward priority 0 ; policy drop ; }")
	if err := r.Refresh(); err != nil {
		t.Fatal(err)
	}
	if d := ask(frame(beta.Addr4().String(), 10)); d.Result != "off" || !strings.Contains(d.Doc, "inet wm c") {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		iface string
		data  []byte
		want  string
	}{
		{"nowhere0", frame(beta.Addr4().String(), 10), "there are " + in},
		{in, make([]byte, 13), "this one 13"},
		{in, make([]byte, 10_000), "this one 10000"},
	} {
		if _, err := r.Explain(c.iface, []datapath.MadeUp{{Data: c.data}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %d bytes: %v", c.iface, len(c.data), err)
		}
	}
}

const xdpDrop = 1

// tryRaw runs the program on bytes of which the first 32 are in front of the frame.
func tryRaw(t *testing.T, r *router, index int, data []byte) (verdict uint32) {
	t.Helper()
	if err := r.host.Do(func() (err error) {
		ctx := struct{ Data, End, Meta, Ingress, Queue, Egress uint32 }{Data: 32, End: uint32(len(data)), Ingress: uint32(index)}
		verdict, err = r.early.Run(&ebpf.RunOptions{Data: data, Context: ctx})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return verdict
}

// forgedNote: a frame with other metadata in front, as programs elsewhere may send it, is a packet as any other.
func (r *router) forgedNote(t *testing.T, alpha, beta *lab.Host) {
	t.Helper()
	var index int
	if err := r.host.Do(func() error {
		i, err := net.InterfaceByName(r.host.Interfaces[0].Name)
		if err == nil {
			index = i.Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := r.portOf(t, 0).Packets
	frame := packet.Eth().IPv4(alpha.Addr4().String(), beta.Addr4().String()).UDP(1, 2).Payload(10).Bytes()
	if verdict := tryRaw(t, r, index, append(slices.Repeat([]byte{0x5a}, 32), frame...)); verdict == xdpDrop {
		t.Errorf("verdict %d", verdict)
	}
	after := r.portOf(t, 0).Packets
	var all uint64
	for i := range after {
		all += after[i] - before[i]
	}
	if all != 1 {
		t.Errorf("%d packets are counted: %v, then %v", all, before, after)
	}
}

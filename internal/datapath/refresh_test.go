package datapath

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// moving is a datapath on both ends of a pair, with a stage on one of them: sampling that counts all packets, or none.
type moving struct {
	*Datapath
	only    string
	calls   []string // of the stage
	counted map[string]uint64
	names   map[flow.Iface]string
}

func newMoving(t *testing.T, v *silentVeth, clsact bool, below uint32) *moving {
	t.Helper()
	m := &moving{only: "from", counted: map[string]uint64{}, names: map[flow.Iface]string{}}
	log := func(what string) func(Hook) error {
		return func(h Hook) error {
			m.calls = append(m.calls, fmt.Sprint(what, " ", h.Target.Name, " ", h.Type))
			return nil
		}
	}
	m.Datapath = New(Config{MaxEntries: 64, Clsact: clsact, Stages: []*Stage{{
		Name: "moving", Programs: []*Program{Ingress, Egress}, Feature: uint32(tcFeatureFEATURE_SAMPLING),
		Uses:   func(h Hook) bool { return h.Target.Name == m.only },
		Attach: log("attach"), Detach: log("detach"),
		Set: func(s *Spec) error { return s.SetConstant("cfg_sample_below", below) },
	}}}, slog.New(slog.DiscardHandler))
	t.Cleanup(m.Close)
	if err := m.Load(); err != nil {
		t.Fatal(err)
	}
	for name, index := range map[string]int{"from": v.from, "to": v.to} {
		iface := flow.NewIface(0, uint32(index))
		m.names[iface] = name
		if _, err := m.Attach(Target{Iface: iface, Name: name, Do: v.do}); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *moving) move(t *testing.T, to string) {
	t.Helper()
	m.only = to
	if err := m.Refresh(); err != nil {
		t.Fatal(err)
	}
}

func (m *moving) drain(t *testing.T) {
	t.Helper()
	err := m.Drain(func(f *flow.Delta) { m.counted[m.names[f.Iface]+" "+f.Direction.String()] += f.Packets })
	if err != nil {
		t.Fatal(err)
	}
}

var movingFrame = packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Payload(100).Bytes()

// A stage that moves to another interface takes its copies of the programs along.
func TestRefresh(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		v := newSilentVeth(t)
		m := newMoving(t, v, clsact, 0)
		sent := func(where string) {
			t.Helper()
			was := m.counted[where]
			for range 5 {
				v.send(t, movingFrame)
			}
			await.True(t, "packets to be counted "+where, func() bool { m.drain(t); return m.counted[where] == was+5 })
		}
		sent("to ingress")
		m.move(t, "to")
		sent("from egress")
		if n := m.counted["to ingress"]; n != 5 {
			t.Errorf("clsact %t: counted %d packets where the stage is", clsact, n)
		}
		want := []string{
			"attach from egress", "attach from ingress", "attach to egress", "attach to ingress", "detach from egress", "detach from ingress",
		}
		if slices.Sort(m.calls); !slices.Equal(m.calls, want) {
			t.Errorf("clsact %t: calls %q, want %q", clsact, m.calls, want)
		}
	}
}

// Programs are replaced between two packets.
func TestRefreshLosesNothing(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		v := newSilentVeth(t)
		m := newMoving(t, v, clsact, math.MaxUint32)
		var sent atomic.Uint64
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					v.send(t, movingFrame)
					sent.Add(1)
				}
			}
		}()
		for i := range 50 {
			m.move(t, []string{"from", "to"}[i%2])
			m.drain(t)
		}
		close(stop)
		<-stopped
		n := sent.Load()
		await.True(t, fmt.Sprintf("%d packets to be counted at both ends", n), func() bool {
			m.drain(t)
			return m.counted["from egress"] == n && m.counted["to ingress"] == n
		})
		if n < 50 {
			t.Errorf("clsact %t: only %d packets were sent", clsact, n)
		}
	}
}

package pdm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

func fromPort(port uint16) []byte {
	return packet.Eth().IPv6(hostA, hostB).UDP(port, portB).Payload(20).Bytes()
}

func (h *pdmHost) drainAt(t *testing.T, now uint64) Stats {
	t.Helper()
	if err := h.pdm.reader.drain(h.epoch(t), datapath.Moment{Mono: int64(now)}, func(*flow.Delta) {}); err != nil {
		t.Fatal(err)
	}
	stats, err := h.pdm.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// Flows come, end, come again and meet in entries of the index; few places are there for many flows. A flow's numbers
// continue while its state lives, and no state is lost or made twice.
func TestPlacesModel(t *testing.T) {
	type state struct {
		psn  uint16
		last uint64
	}
	const entries, pool, steps = 128, 400, 6000
	cfg := *marking()
	cfg.MaxEntries, cfg.Lifetime = entries, 10*time.Second
	lifetime := uint64(cfg.Lifetime)
	h := newPDMHost(t, cfg)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	defer func() {
		if t.Failed() {
			t.Logf("seed %#x", seed)
		}
	}()
	model := map[uint16]state{}
	now, vacant, refused, reused := uint64(1e9), entries, 0, 0
	// As long as it takes until all of it was seen.
	for step := 0; step < steps || step < 20*steps && (refused == 0 || reused < 3*entries); step++ {
		switch n := r.IntN(200); {
		case n < 2:
			now += r.Uint64N(6e9)
			h.set(t, now)
		case n == 2:
			stats := h.drainAt(t, now)
			for port, s := range model {
				if now-s.last > lifetime {
					delete(model, port)
				}
			}
			if stats.States != uint64(len(model)) || stats.Evicted != 0 || stats.Created != stats.Expired+stats.States {
				t.Fatalf("step %d: %d states live: %+v", step, len(model), stats)
			}
			checkPlaces(t, h.pdm)
			vacant = entries - len(model)
		default:
			// Some flows send often, and the others move on.
			port := uint16(1000 + r.IntN(30))
			if r.IntN(2) == 0 {
				port = uint16(2000 + (step/20+r.IntN(40))%pool)
			}
			s, known := model[port]
			live := known && now-s.last <= lifetime
			o, err := pdm.Find(h.send(t, fromPort(port))[etherLen:])
			switch {
			case err != nil && !live && vacant == 0:
				refused++
				continue
			case err != nil:
				t.Fatalf("step %d: flow %d is not marked, with %d vacant states: %v", step, port, vacant, err)
			case live && o.PSNTP != s.psn+1:
				t.Fatalf("step %d: flow %d has number %d after %d", step, port, o.PSNTP, s.psn)
			case !live && vacant == 0:
				t.Fatalf("step %d: flow %d got a state beyond the limit", step, port)
			case !live && !o.IsFirst():
				t.Fatalf("step %d: flow %d began with what another left: %v", step, port, o)
			}
			if !live {
				vacant--
				reused++
			}
			model[port] = state{psn: o.PSNTP, last: now}
		}
	}
	if refused == 0 || reused < 3*entries {
		t.Errorf("%d packets were refused, %d states made", refused, reused)
	}
}

// Two processors make and find states, of the same flows and of others, while the agent frees those that are stale.
func TestPlacesOnTwoProcessors(t *testing.T) {
	const lasting, passing, rounds = 40, 150, 12
	cpus, err := kernel.CPUs("online")
	if err != nil {
		t.Fatal(err)
	}
	cfg := *marking()
	cfg.MaxEntries, cfg.Lifetime = 2048, 10*time.Second
	h := newPDMHost(t, cfg)
	var numbers [2][lasting][]uint16
	now := uint64(1e9)
	send := func(cpu, round int) error {
		return h.veth.Do(func() error {
			var one unix.CPUSet
			one.Set(cpu % cpus)
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				return err
			}
			for i := range passing {
				port := uint16(10_000 + (round*passing+i+cpu*passing/2)%20_000)
				if _, _, err := h.runHere("test_egress", packet.Frame{Data: fromPort(port)}); err != nil {
					return err
				}
				n := i % lasting
				out, _, err := h.runHere("test_egress", packet.Frame{Data: fromPort(uint16(1000 + n))})
				if err != nil {
					return err
				}
				// Where both make a state at once, one packet goes unmarked.
				if o, err := pdm.Find(out[etherLen:]); err == nil {
					numbers[cpu][n] = append(numbers[cpu][n], o.PSNTP)
				}
			}
			return nil
		})
	}
	for round := range rounds {
		var wait sync.WaitGroup
		errs := make([]error, 2)
		for cpu := range errs {
			wait.Go(func() { errs[cpu] = send(cpu, round) })
		}
		for range 5 {
			h.drainAt(t, now)
		}
		wait.Wait()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
		now += 6e9
		h.set(t, now)
	}
	stats := h.drainAt(t, now)
	if stats.Created != stats.Expired+stats.States || stats.Evicted != 0 || stats.Expired < passing*rounds/2 {
		t.Errorf("states were lost: %+v", stats)
	}
	checkPlaces(t, h.pdm)
	for n := range lasting {
		all := slices.Concat(numbers[0][n], numbers[1][n])
		if err := consecutive(all); err != nil {
			t.Errorf("flow %d: %v", n, err)
		}
		if len(all) < passing*rounds/lasting {
			t.Errorf("flow %d has %d marks", n, len(all))
		}
	}
}

// consecutive reports whether 16-bit numbers, in any order, are all of those between the first and the last.
func consecutive(numbers []uint16) error {
	seen := map[uint16]bool{}
	begins := 0
	for _, n := range numbers {
		if seen[n] {
			return fmt.Errorf("number %d was given twice", n)
		}
		seen[n] = true
	}
	for n := range seen {
		if !seen[n-1] {
			begins++
		}
	}
	if begins != 1 {
		return fmt.Errorf("%d numbers with %d gaps", len(numbers), begins-1)
	}
	return nil
}

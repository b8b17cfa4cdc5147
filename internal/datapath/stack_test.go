package datapath_test

import (
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/forward"
	"github.com/waymark-net/waymark/internal/gate"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	inband "github.com/waymark-net/waymark/internal/inband/pdm"
)

const (
	maxStack = 512
	// Linux 6.1 rounds each frame up to what its interpreter has.
	stackUnit = 32
)

// maxMaps is less than the 64 that Linux lets a program use: copies that are bound to a device, and changes, have space.
const maxMaps = 62

// TestStack: with all features, no chain of calls takes more stack than Linux 6.1 grants, which counts more than this kernel,
// and no program uses more maps. Without sampling, programs have code that they have not with it.
func TestStack(t *testing.T) {
	for _, sampling := range []uint32{0, 1000} {
		checkStack(t, sampling)
	}
}

func checkStack(t *testing.T, sampling uint32) {
	log := slog.New(slog.DiscardHandler)
	any := func(string) bool { return true }
	reader := hints.NewReader(&hints.Config{}, log)
	d := datapath.New(datapath.Config{Sampling: sampling, Tunnels: allTunnels, Stages: []*datapath.Stage{
		gate.New(gate.Default(), log).Stage(any), inband.New(inband.Default()).Stage(),
		inbandioam.New(inbandioam.Config{}).Stage(any), reader.Stage(), reader.Passing(),
		forward.New(forward.Config{}, log).Stage(any), balancerOfAll(log).Stage(),
	}}, log)
	t.Cleanup(d.Close)
	if err := d.LoadFixed(func(*datapath.Program, bool) bool { return true }); err != nil {
		t.Fatalf("%+v", err)
	}
	for _, p := range []*datapath.Program{datapath.Early, datapath.Ingress, datapath.Egress} {
		for _, noLink := range []bool{false, true} {
			deepest := stackOf(t, d.Loaded(p, noLink)).deepest(0)
			maps := mapsOf(t, d.Loaded(p, noLink))
			t.Logf("%s, sampling %d, link header %t: %d maps, %d bytes in %s", p.Name, sampling, !noLink, maps, deepest.bytes, deepest.path)
			if maps > maxMaps {
				t.Errorf("%s uses %d maps, of %d", p.Name, maps, maxMaps)
			}
			if deepest.bytes > maxStack {
				t.Errorf("%s takes %d bytes of stack, of %d: %s", p.Name, deepest.bytes, maxStack, deepest.path)
			}
		}
	}
}

// mapsOf is how many maps a program uses: what is in code that the verifier removes counts, too.
func mapsOf(t *testing.T, p *ebpf.Program) int {
	t.Helper()
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	ids, known := info.MapIDs()
	if !known {
		t.Fatal("the kernel does not say which maps a program uses")
	}
	return len(ids)
}

// frames are the functions of a program, the first of which is its own.
type frames []struct {
	name  string
	bytes int // of stack
	calls []int
}

type chain struct {
	bytes int
	path  string
}

// deepest is the chain of calls from a function that takes most of the stack. There is no recursion.
func (f frames) deepest(from int) (most chain) {
	for _, to := range f[from].calls {
		if c := f.deepest(to); c.bytes > most.bytes {
			most = c
		}
	}
	one := max(f[from].bytes, 1)
	most.bytes += (one + stackUnit - 1) / stackUnit * stackUnit
	most.path = strings.TrimSuffix(fmt.Sprintf("%s %d > %s", f[from].name, f[from].bytes, most.path), " > ")
	return most
}

var stackDepths = regexp.MustCompile(`stack depth ([0-9+]+)`)

// stackOf reads a program's functions as the kernel has them: in its log, it has the stack of each.
func stackOf(t *testing.T, p *ebpf.Program) (all frames) {
	t.Helper()
	depths := stackDepths.FindStringSubmatch(p.VerifierLog)
	if depths == nil {
		t.Fatalf("no stack depth in the verifier's log:\n%s", p.VerifierLog)
	}
	info, err := p.Info()
	if err != nil {
		t.Fatal(err)
	}
	insns, err := info.Instructions()
	if err != nil {
		t.Fatal(err)
	}
	for i := range insns {
		if f := btf.FuncMetadata(&insns[i]); f != nil {
			all = append(all, frames{{name: f.Name}}...)
		}
		if last := len(all) - 1; insns[i].OpCode.JumpOp() == asm.Call && insns[i].Src == asm.PseudoCall {
			all[last].calls = append(all[last].calls, int(insns[i].Constant)) // the kernel says which
		}
	}
	bytes := strings.Split(depths[1], "+")
	if len(bytes) != len(all) {
		t.Fatalf("%d functions have %d depths: %s", len(all), len(bytes), depths[1])
	}
	for i := range all {
		if all[i].bytes, err = strconv.Atoi(bytes[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

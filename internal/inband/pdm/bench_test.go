package pdm

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/inband/pdm/pdmtest"
	"github.com/waymark-net/waymark/wire/pdm"
)

// benchHost is a host with the programs that are timed alongside its probe.
type benchHost struct {
	*pdmHost
	programs map[string]*ebpf.Program
	coll     *ebpf.Collection // these, not those of the host
}

// newBenchHost loads the named programs and bench_known; without names all.
func newBenchHost(b testing.TB, flows uint32, names ...string) *benchHost {
	b.Helper()
	cfg := *marking()
	cfg.MaxEntries = 1 << 17
	return newBenchHostOf(b, cfg, flows, names...)
}

func newBenchHostOf(b testing.TB, cfg Config, flows uint32, names ...string) *benchHost {
	b.Helper()
	h := newPDMHost(b, cfg)
	coll, err := h.Alongside(pdmtest.LoadBench, func(spec *ebpf.CollectionSpec) error {
		if err := spec.Variables["bench_flows"].Set(flows); err != nil || len(names) == 0 {
			return err
		}
		return only(append(names, "bench_known")...)(spec)
	})
	if err != nil {
		b.Fatalf("%+v", err)
	}
	b.Cleanup(coll.Close)
	host := &benchHost{pdmHost: h, programs: coll.Programs, coll: coll}
	if err := host.repeatHere("bench_known", aToB().Bytes(), 1); err != nil {
		b.Fatal(err)
	}
	return host
}

// perRun is the processor time that one run of a program takes, in ns.
func (h *benchHost) perRun(b testing.TB, program string, frame []byte, n int) float64 {
	b.Helper()
	var took int64
	err := h.veth.Do(func() error {
		var ctx [48]uint32
		ctx[10] = uint32(h.ifindex)
		before, err := threadTime()
		if err != nil {
			return err
		}
		verdict, err := h.programs[program].Run(&ebpf.RunOptions{Data: frame, Context: ctx, Repeat: uint32(n)})
		if err != nil {
			return err
		}
		if int32(verdict) != -1 {
			b.Errorf("%s: verdict %d", program, int32(verdict))
		}
		after, err := threadTime()
		took = after - before
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return float64(took) / float64(n)
}

// threadTime is the processor time of this thread, in ns.
func threadTime() (int64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano(), err
}

// BenchmarkPDM reports what the stages take over the empty program, which is
// measured in the same rounds. b.N is rounds of 100,000 packets.
func BenchmarkPDM(b *testing.B) {
	for name, flows := range map[string]uint32{"1 flow": 1, "1000 flows": 1000, "64k flows": 1 << 16} {
		b.Run(name, func(b *testing.B) {
			h := newBenchHost(b, flows)
			plain := aToB().Bytes()
			answer := inserted(b, bToA().Bytes(), pdm.Option{PSNTP: 1, DeltaTLS: 1, ScaleDTLS: 20, DeltaTLR: 1, ScaleDTLR: 20})
			const n = 100_000
			h.perRun(b, "bench_mark", plain, 2*int(flows)) // all flows have a state
			sum := map[string]float64{}
			for b.Loop() {
				for _, p := range []string{"bench_empty", "bench_resize", "bench_mark", "bench_egress"} {
					sum[p] += h.perRun(b, p, plain, n)
				}
				for _, p := range []string{"bench_number", "bench_read", "bench_make_answer", "bench_answer", "bench_ingress"} {
					sum[p] += h.perRun(b, p, answer, n)
				}
			}
			if err := h.pdm.SetPolicies(nil); err != nil {
				b.Fatal(err)
			}
			sum["bench_pass"] = h.perRun(b, "bench_pass", plain, n) * float64(b.N)
			resize := sum["bench_resize"] - sum["bench_empty"]
			for unit, v := range map[string]float64{
				"ns/mark":    sum["bench_mark"] - sum["bench_empty"] - resize/2,
				"ns/egress":  sum["bench_egress"] - sum["bench_empty"] - resize/2,
				"ns/pass":    sum["bench_pass"] - sum["bench_empty"],
				"ns/read":    sum["bench_read"] - sum["bench_number"],
				"ns/answer":  sum["bench_answer"] - sum["bench_make_answer"],
				"ns/ingress": sum["bench_ingress"] - sum["bench_number"],
			} {
				b.ReportMetric(v/float64(b.N), unit)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

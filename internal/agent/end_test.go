package agent

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Packets that come while the agent ends are in its records up to the moment in
// which it is detached: the kernel's own count of the programs' runs says so.
func TestEndCountsEveryPacket(t *testing.T) {
	l := newLab(t)
	alpha, beta := l.Host("alpha"), l.Host("beta")
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	cfg, path := agentConfig(t, "ebpf", alpha, beta)
	cfg.Flow.ScanInterval = time.Minute // the end is the only drain
	a := start(t, cfg)
	table, programs, err := a.probe.Status()
	if err != nil || table.MaxEntries == 0 {
		t.Fatal(err)
	}
	var held []*ebpf.Program
	for _, p := range programs {
		h, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		held = append(held, h)
	}

	stop := make(chan struct{})
	var sending sync.WaitGroup
	for i := range 2 {
		sending.Go(func() {
			var conn net.Conn
			err := alpha.Do(func() (err error) {
				conn, err = net.Dial("udp", netip.AddrPortFrom(beta.Addr6(), uint16(9000+i)).String())
				return err
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = conn.Write([]byte("counted until the end")) // refused: beta does not listen
				}
			}
		})
	}
	runs := func() (n uint64) {
		for _, h := range held {
			s, err := h.Stats()
			if err != nil {
				t.Fatal(err)
			}
			n += s.RunCount
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); runs() < 20_000 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	err = a.stop()
	close(stop)
	sending.Wait()
	if err != nil {
		t.Fatal(err)
	}
	var packets uint64 // none of them a burst
	for _, r := range readRecords(t, path) {
		packets += r.Packets
	}
	if want := runs(); packets != want || want == 0 {
		t.Errorf("%d packets in records, %d runs of the programs", packets, want)
	}
}

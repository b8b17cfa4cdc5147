package gate

import (
	"context"
	"encoding/binary"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// found collects candidates until the test ends.
type found struct {
	sync.Mutex
	list []Candidate
}

func (f *found) of(source string) (c Candidate, n int) {
	f.Lock()
	defer f.Unlock()
	for _, one := range f.list {
		if one.Source.String() == source {
			c = one
			n++
		}
	}
	return c, n
}

func (f *found) count() int {
	f.Lock()
	defer f.Unlock()
	return len(f.list)
}

func (b *bench) find(t *testing.T) *found {
	t.Helper()
	f := &found{}
	ctx, stop := context.WithCancel(context.Background())
	var reader sync.WaitGroup
	reader.Go(func() {
		if err := b.Candidates(ctx, func(c *Candidate) {
			f.Lock()
			defer f.Unlock()
			f.list = append(f.list, *c)
		}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		reader.Wait()
	})
	return f
}

// sends runs a frame many times.
func (b *bench) sends(t *testing.T, h at, frame []byte, n int) {
	t.Helper()
	if _, _, err := b.program(t, h.code).Benchmark(frame, n, func() {}); err != nil {
		t.Fatal(err)
	}
}

// TestDetect: at both hooks, a source above the rate is found with what it sent, by address and by
// prefix, in packets and in bytes; those below it, and what rules do not match, are not.
func TestDetect(t *testing.T) {
	b := open(t, small())
	f := b.find(t)
	b.apply(t, "detect 20000/s udp dst port 53\ndetect 20MB/s per src/24/48 ip6\ndetect 100000000/s per src/16\npass udp")
	heavy := packet.Eth().IPv4("192.0.2.1", "198.51.100.2").UDP(7, 53).Payload(30).Bytes()
	other := packet.Eth().IPv4("192.0.2.2", "198.51.100.2").UDP(7, 54).Payload(30).Bytes()
	light := packet.Eth().IPv4("192.0.2.3", "198.51.100.2").UDP(7, 53).Payload(30).Bytes()
	long := packet.Eth().IPv6("2001:db8:1:2::3", "2001:db8::2").TCP(7, 80).Payload(1300).Bytes()
	for _, h := range hooks {
		before := f.count()
		b.sends(t, h, light, 5000)
		b.sends(t, h, other, 100000)
		b.sends(t, h, heavy, 50000)
		b.sends(t, h, long, 40000)
		// A window may have ended just then: what goes on is found in the next.
		await.True(t, h.name+": the heavy source", func() bool {
			_, n := f.of("192.0.2.1/32")
			if n == 0 || f.count() == before {
				b.sends(t, h, heavy, 50000)
			}
			return n > 0 && f.count() > before
		})
		await.True(t, h.name+": the heavy prefix", func() bool {
			_, n := f.of("2001:db8:1::/48")
			if n == 0 {
				b.sends(t, h, long, 40000)
			}
			return n > 0
		})
	}
	for _, not := range []string{"192.0.2.2/32", "192.0.2.3/32", "192.0.0.0/16"} {
		if c, n := f.of(not); n > 0 {
			t.Errorf("%s: %+v", not, c)
		}
	}
	c, _ := f.of("192.0.2.1/32")
	if want := uint64(20000); c.Amount < want || c.Amount > 2*want || c.Rule != b.table.Rules[0].ID || c.Packet != "src 192.0.2.1 dst 198.51.100.2 proto 17 src port 7 dst port 53 len 58" || time.Since(c.Time) > time.Minute {
		t.Errorf("%+v", c)
	}
}

// TestForgedSources: many sources, each seen once or twice, are no candidates, however many
// packets they are; and the flood is counted.
func TestForgedSources(t *testing.T) {
	b := open(t, small())
	f := b.find(t)
	b.apply(t, "detect 100/s per src\nlimit 1/s burst 1 udp")
	frame := packet.Eth().IPv4("0.0.0.0", "198.51.100.2").UDP(7, 53).Bytes()
	number, sent := uint64(0), uint64(0)
	windows := func() Window {
		w, err := b.Windows()
		if err != nil || len(w) != 1 {
			t.Fatalf("%v, %v", w, err)
		}
		return w[0]
	}
	early := b.program(t, datapath.Early)
	for begin := time.Now(); time.Since(begin) < 2*DetectWindow+DetectWindow/2; sent++ {
		number += 0x9e3779b97f4a7c15
		binary.BigEndian.PutUint32(frame[26:], uint32(number>>32)&0x7fffffff|1<<24)
		if _, err := early.Run(&ebpf.RunOptions{Data: frame}); err != nil {
			t.Fatal(err)
		}
	}
	w := windows()
	if n := f.count(); n > 0 || w.Lost > 0 {
		t.Errorf("%d candidates of %d forged packets", n, sent)
	}
	// More sources than the estimate can show are sent by a fast processor.
	if w.Packets == 0 || w.Sources < min(w.Packets, 150000)*9/10 || w.Sources > w.Packets*11/10 {
		t.Errorf("%+v: %d packets were sent", w, sent)
	}
	t.Logf("%+v", w)
}

// What does not fit is refused.
func TestTooManyWatches(t *testing.T) {
	var lines []string
	for range 9 {
		lines = append(lines, "detect 100/s per src")
	}
	rs, _, err := rules.Parse("f", strings.Join(lines, "\n"), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(rs); err == nil || !strings.Contains(err.Error(), "9 rates to detect, and 8 fit") {
		t.Error(err)
	}
}

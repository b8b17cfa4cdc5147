package pdm

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband/headroom"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"
)

func newLimited(t testing.TB, limit uint32) *unknownPath {
	cfg := *marking()
	cfg.MarksPerSecond = limit
	return &unknownPath{newPDMHost(t, cfg), time.Second}
}

// No second has more marks of a flow than the limit, they are spread over it, and
// their numbers have no gaps; each packet without one is counted.
func TestLimitOfMarks(t *testing.T) {
	const seconds, perSecond = 2, 200
	for _, limit := range []uint32{0, 1, 60, perSecond} {
		h := newLimited(t, limit)
		var marked [seconds * 10]int // in a tenth of a second
		total := 0
		var last pdm.Option
		for i := range seconds * perSecond {
			out := h.send(t, aToB().Bytes())
			if o, err := pdm.Find(out[etherLen:]); err == nil {
				if total > 0 && o.PSNTP != last.PSNTP+1 {
					t.Fatalf("limit %d: number %d after %d", limit, o.PSNTP, last.PSNTP)
				}
				last = o
				marked[i*10/perSecond]++
				total++
			}
			h.wait(t, time.Second/perSecond)
		}
		want := map[string]uint64{}
		if passed := seconds*perSecond - total; passed > 0 {
			want["limited"] = uint64(passed)
		}
		if got := h.why(t); !maps.Equal(got, want) {
			t.Errorf("limit %d: of %d packets %d were marked, passed over %v", limit, seconds*perSecond, total, got)
		}
		for s := range seconds {
			sum := 0
			for _, n := range marked[s*10 : s*10+10] {
				sum += n
			}
			least, most := int(limit)*8/10, int(limit)
			if limit == 0 {
				least, most = perSecond, perSecond
			}
			if sum < least || sum > most {
				t.Errorf("limit %d: %d marks in second %d", limit, sum, s)
			}
		}
		if limit == 60 {
			for tenth, n := range marked {
				if n == 0 {
					t.Errorf("no mark in tenth %d: %v", tenth, marked)
				}
			}
		}
	}
	// What is sent at once has marks, and so has every other flow.
	h := newLimited(t, 100)
	for i := range 2 {
		for n := range 60 {
			frame := packet.Eth().IPv6(hostA, hostB).UDP(uint16(1000+i), portB).Payload(20).Bytes()
			if marked := !bytes.Equal(h.send(t, frame), frame); marked != (n < 50) {
				t.Fatalf("flow %d: packet %d of a burst is marked: %t", i, n, marked)
			}
		}
	}
}

// The first packets of answers are marked while bulk data is not. Where even they
// are not, nothing else of the answer is, nor does a request that ends unmarked
// show a delay: either would be wrong.
func TestLimitKeepsAnswers(t *testing.T) {
	h := newLimited(t, 100)
	bulk := func(b packet.Builder) (marked int) {
		t.Helper()
		for range 80 {
			if h.marks(t, b, false) {
				marked++
			}
		}
		return marked
	}
	request := func() {
		t.Helper()
		h.wait(t, time.Millisecond)
		s, _ := h.state(t, keyA)
		h.receive(t, inserted(t, bToA().Bytes(), pdm.Option{PSNTP: s.Highest + 1, PSNLR: uint16(s.Psn - 1), DeltaTLR: 1, DeltaTLS: 1}))
	}
	if n := bulk(aToB()); n != 50 {
		t.Fatalf("of bulk data %d were marked", n)
	}
	answers := 0
	for answers < 200 {
		request()
		if !h.marks(t, aToB(), false) {
			break
		}
		answers++
		if n := bulk(aToB()); n > 1 {
			t.Fatalf("of bulk data %d were marked", n)
		}
	}
	if answers < 40 || answers > 50 {
		t.Errorf("%d answers were marked", answers)
	}
	h.wait(t, 965*time.Millisecond) // there are marks again, and the peer named one less than a second ago
	if n := bulk(aToB()); n != 0 {
		t.Errorf("of an answer that began without a mark %d packets were marked", n)
	}
	request()
	if n := bulk(aToB()); n != 50 {
		t.Errorf("of the next answer %d packets were marked", n)
	}
	if s, _ := h.state(t, keyA); s.Request != 0 {
		t.Error("a request that ended unmarked waits for its answer")
	}
}

// Alongside a transfer whose bulk data is mostly not marked, a service has the delays
// that it has, and no mark is said to be lost.
func TestLimitAlongsideAService(t *testing.T) {
	const think, requests, limit = 20 * time.Millisecond, 30, 200
	l := datapathtest.NewLab(t, lab.Config{Topology: "pair", MTU: 1500})
	cfg := Default()
	cfg.Packets = true // a burst has one mark
	cfg.MarksPerSecond = limit
	a, b := mark(t, l.Host("alpha"), cfg, headroom.Interface), mark(t, l.Host("beta"), cfg, headroom.Interface)
	// What comes with a mark of a flow that is not marked here is passed over, too, but never left.
	const strangers, port = 3, 7002
	b.know(t, a.Addr6(), port)
	if _, err := traffic.Datagrams(t.Context(), b.Host, a.Host, traffic.DatagramConfig{
		To: netip.AddrPortFrom(a.Addr6(), port), Count: strangers, Size: 100, Idle: time.Minute,
	}); err != nil {
		t.Fatal(err)
	}
	service, err := traffic.Serve(t.Context(), b.Host, traffic.ServiceConfig{
		Network: "tcp", Listen: netip.AddrPortFrom(b.Addr6(), 0), Think: think,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var both errgroup.Group
	begin := time.Now()
	both.Go(func() error {
		_, err := traffic.Bulk(ctx, a.Host, b.Host, traffic.BulkConfig{To: netip.AddrPortFrom(b.Addr6(), 0), Bytes: 64 << 20})
		return err
	})
	var asked traffic.RequestResult
	both.Go(func() (err error) {
		asked, err = traffic.Request(ctx, a.Host, traffic.RequestConfig{
			Network: "tcp", To: service.Addr(), Clients: 1, Requests: requests, RequestSize: 200, ResponseSize: 1000,
		})
		return err
	})
	if err := both.Wait(); err != nil {
		t.Fatal(err)
	}
	seconds := int(time.Since(begin)/time.Second) + 1
	a.drain(t)
	b.drain(t)
	got, sent := a.reported(flow.Ingress), a.reported(flow.Egress).Sent
	t.Logf("in %d s %d packets were marked, passed over %v; server %v of %d", seconds, sent, a.unmarked(), got.Server.Quantile(0.5), got.Server.Count)
	median := got.Server.Quantile(0.5)
	truth := service.Thought().Median()
	// The marks of an answer tell what passed on the host: more than the service took, and less than the client waited.
	// A histogram's classes are an eighth wide.
	// A request or an answer that TCP sends again, as it does where processors are busy, tells nothing.
	if got.Server.Count < requests*2/3 || median < truth*7/8 || median > asked.Latencies.Median()*9/8 {
		t.Errorf("server %v of %d requests, the truth is %v of %d, and clients waited %v", median, got.Server.Count, truth, requests, asked.Latencies.Median())
	}
	// Each packet that left is marked, or has a reason why not. What a host sends of itself may come between two readings.
	await.Success(t, func() error {
		a.drain(t)
		passed := uint64(0)
		for _, n := range a.unmarked() {
			passed += n
		}
		if sent, all := a.reported(flow.Egress).Sent, a.counts[flow.Egress].Packets; sent+passed != all {
			return fmt.Errorf("%d packets were marked and %d not, of %d", sent, passed, all)
		}
		return nil
	})
	if a.unread()["no_state"] < strangers {
		t.Errorf("of datagrams of a flow that is not marked here, passed over %v", a.unread())
	}
	if sent > uint64(seconds*limit*2+requests*4) || a.unmarked()["limited"] < 1000 {
		t.Errorf("%d packets were marked in %d s, passed over %v", sent, seconds, a.unmarked())
	}
	if got := b.reported(flow.Ingress); got.Lost != 0 || got.Suspicious != 0 {
		t.Errorf("the receiver counted %d lost, %d suspicious", got.Lost, got.Suspicious)
	}
}

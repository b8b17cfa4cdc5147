package device

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
	"github.com/waymark-net/waymark/internal/flow"
)

// TestShare: of one address, no more flows and sessions are kept however many domains it sends; what is beyond is summed, and
// a domain with few flows keeps them.
func TestShare(t *testing.T) {
	const domains, each, most = 12, 4000, 16000
	now := time.Now()
	of := &share{most: most}
	var list []*exporter
	domain := func() *exporter {
		e := newExporter(fmt.Sprint(len(list)), nil, of, netip.MustParseAddr("192.0.2.1"), uint32(len(list)), 0, now, nil)
		list = append(list, e)
		return e
	}
	send := func(e *exporter, first, n int, port uint16) {
		records := devicetest.Buffer{}
		for i := range n {
			records = records.Bytes(devicetest.Record(uint16(first+i), 5, 500))
		}
		b := devicetest.IPFIX(0, uint32(first), devicetest.Set(2, devicetest.Template(256)), devicetest.Set(256, records))
		h, err := decode.Peek(b)
		if err != nil {
			t.Fatal(err)
		}
		e.take(&h, b, port, now)
	}
	for range domains {
		e := domain()
		for i := 0; i < each; i += 100 {
			send(e, i, 100, uint16(i/100))
		}
	}
	send(domain(), 0, 100, 1)
	if flows, sessions := of.flows.Load(), of.sessions.Load(); flows < most || flows > 2*most || sessions > sessionsInAll+2*int64(len(list)) {
		t.Errorf("%d flows, %d sessions", flows, sessions)
	}
	var packets, summed uint64
	for _, e := range list {
		ended, _ := e.turn(now.Add(time.Second))
		rows, own := 0, uint64(0)
		ended.Each(func(r *flow.Record) {
			packets += r.Packets
			if own += r.Packets; !r.Unattributed {
				rows++
			}
		})
		summed += e.status.Summed
		if e == list[len(list)-1] && (rows != 100 || own != 500) {
			t.Errorf("the one with few flows has %d of 100", rows)
		}
	}
	if packets != 5*(domains*each+100) || summed == 0 {
		t.Errorf("%d packets, %d records summed", packets, summed)
	}
	now = now.Add(2 * idleTime)
	for _, e := range list {
		e.turn(now)
		if ended, _ := e.turn(now); ended.Len() > 0 {
			t.Errorf("%d records are left", ended.Len())
		}
	}
	if flows := of.flows.Load(); flows != 0 {
		t.Errorf("%d flows are left", flows)
	}
}

package lab_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

// Each packet that passes a slow router takes that much longer, at least.
func TestSlowHost(t *testing.T) {
	l := up(t, lab.Config{Topology: "chain"})
	send := func() traffic.Durations {
		t.Helper()
		r, err := traffic.Datagrams(t.Context(), l.Host("alpha"), l.Host("beta"), traffic.DatagramConfig{
			To: netip.AddrPortFrom(l.Host("beta").Addr6(), 0), Count: 20, Size: 64, Interval: 10 * time.Millisecond,
		})
		if err != nil || r.Distinct != 20 {
			t.Fatalf("%d datagrams arrived, %v", r.Distinct, err)
		}
		return r.Delays
	}
	before := send()
	const delay = 3 * time.Millisecond
	if err := l.Host("porthos").Slow(delay); err != nil {
		t.Fatalf("%+v", err)
	}
	after := send()
	if least := slices.Min(after); least < delay {
		t.Errorf("a datagram took %v through a host that takes %v", least, delay)
	}
	if added := after.Median() - before.Median(); added > 2*delay {
		t.Errorf("datagrams took %v more", added)
	}
	for host, delay := range map[string]time.Duration{"porthos": 0, "athos": -1, "beta": lab.MaxSlow + 1, "gamma": 1} {
		if _, err := lab.Up(lab.Config{Topology: "chain", Slow: map[string]time.Duration{host: delay}}); !errors.Is(err, lab.ErrConfig) {
			t.Errorf("%s slow by %v: %v", host, delay, err)
		}
	}
}

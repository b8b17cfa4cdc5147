package marktest

import (
	"bufio"
	"context"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
)

// ResentMost is how many segments of a transfer of so many bytes may be sent again: where processors are busy with others,
// segments overtake each other and timers are early, marked or not.
func ResentMost(bytes int64) uint32 { return uint32(max(300, bytes/1200/8)) }

// Transfers moves bytes both ways, by TCP and UDP, and returns what was sent again, of 6,000 segments or more: all that
// slows a transfer down but a busy machine. added is by how much packets grow.
func Transfers(t testing.TB, from, to *lab.Host, mtu, added int) (resent uint32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, way := range [][2]*lab.Host{{from, to}, {to, from}} {
		addr := netip.AddrPortFrom(way[1].Addr6(), 0)
		bulk, err := traffic.Bulk(ctx, way[0], way[1], traffic.BulkConfig{To: addr, Bytes: 4 << 20})
		if err != nil {
			t.Fatal(err)
		}
		resent += bulk.Sender.Retransmits
		for _, size := range []int{100, mtu - 48 - added, mtu - 48} {
			r, err := traffic.Datagrams(ctx, way[0], way[1], traffic.DatagramConfig{To: addr, Count: 200, Size: size, Flows: 2, Idle: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if r.Distinct != 200 {
				t.Errorf("of 200 datagrams of %d bytes %d arrived", size, r.Distinct)
			}
		}
	}
	return resent
}

// Faults are the host's counters of packets that it could not use.
func Faults(t testing.TB, h *lab.Host) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	err := h.Do(func() error {
		six, err := os.ReadFile("/proc/thread-self/net/snmp6")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(six), "\n") {
			f := strings.Fields(line)
			if len(f) == 2 && (strings.Contains(f[0], "Csum") || slices.Contains([]string{"Ip6InHdrErrors", "Ip6InTooBigErrors", "Ip6InTruncatedPkts", "Ip6InUnknownProtos"}, f[0])) {
				out[f[0]], _ = strconv.ParseUint(f[1], 10, 64)
			}
		}
		four, err := os.Open("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		defer four.Close()
		for s := bufio.NewScanner(four); s.Scan(); {
			names := strings.Fields(s.Text())
			if !s.Scan() {
				break
			}
			for i, v := range strings.Fields(s.Text()) {
				if strings.Contains(names[i], "Csum") || names[0] == "Tcp:" && names[i] == "InErrs" {
					out[names[0]+names[i]], _ = strconv.ParseUint(v, 10, 64)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 8 {
		t.Fatalf("found only the counters %v", out)
	}
	return out
}

// NewFaults are the counters that moved.
func NewFaults(before, after map[string]uint64) map[string]uint64 {
	moved := map[string]uint64{}
	for name, n := range after {
		if n != before[name] {
			moved[name] = n - before[name]
		}
	}
	return moved
}

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
)

// TestRun: the agent with all exporters at once, on real traffic. What each of
// them says, and the interface's own counters, are the same sums.
func TestRun(t *testing.T) {
	t.Parallel()
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			t.Parallel()
			_, alpha, beta := newLab(t)
			iface := alpha.Interfaces[0].Name
			nfcapd := newCollector(t, alpha, "127.0.0.1")
			otlp := newOTLPCollector(t, alpha, "127.0.0.1:4318")
			before := readCounters(t, alpha, iface)
			a := start(t, setup{host: alpha, config: "probe: " + probe + "\n" + quick + `
interfaces: [` + iface + `]
export:
- jsonl: {path: DIR/flows.jsonl}
- ipfix: {collector: "udp://127.0.0.1:4739"}
- prometheus: {listen: "127.0.0.1:9474"}
- otlp: {metrics_interval: 200ms}
`})
			counting := readCounters(t, alpha, iface)

			pings := makeTraffic(t, alpha, beta)
			waitEndReasons(t, a)
			s := a.covered(t)
			metrics := get(t, alpha, "http://127.0.0.1:9474/metrics")
			still := readCounters(t, alpha, iface)
			programs := s.Programs
			a.stop(t)
			after := readCounters(t, alpha, iface)
			pings()

			records := readLines(t, a.path("flows.jsonl"))
			for _, side := range []struct {
				direction      string
				low, high, end amount
			}{
				{"ingress", minus(still.rx, counting.rx), minus(after.rx, before.rx), amount{}},
				{"egress", minus(still.tx, counting.tx), minus(after.tx, before.tx), amount{}},
			} {
				got := sum(records, func(r *record) bool { return r.Direction == side.direction })
				for _, i := range s.Interfaces {
					if i.Direction != side.direction {
						continue
					}
					for _, u := range i.Uncounted { // ARP and the like
						got.Packets += u.Packets
						got.WireBytes += u.Bytes
					}
				}
				if got.Packets < side.low.Packets || got.Packets > side.high.Packets ||
					got.WireBytes < side.low.WireBytes || got.WireBytes > side.high.WireBytes {
					t.Errorf("%s: records hold %+v, the interface counted %+v to %+v", side.direction, got, side.low, side.high)
				}
				if side.low.Packets < 1000 {
					t.Errorf("%s: %+v is too little to tell anything", side.direction, side.low)
				}
			}
			sameSums(t, records, nfcapd.records(t, alpha))
			otlp.same(t, records)
			rightEnds(t, records)
			if !strings.Contains(metrics, "# TYPE waymark_") {
				t.Errorf("metrics: %s", metrics)
			}

			// Nothing is left.
			gone(t, programs)
			if probe == "ebpf" && len(programs) == 0 {
				t.Error("the agent named no programs")
			}
			if got := attached(t, alpha); got != "" {
				t.Errorf("left on the interfaces: %s", got)
			}
			if got := must(t, alpha, "ss", "-0lnH"); got != "" {
				t.Errorf("packet sockets: %s", got)
			}
			if exists(a.socket) {
				t.Error("the socket is still there")
			}
		})
	}
}

func minus(a, b amount) amount {
	return amount{a.Packets - b.Packets, a.Bytes - b.Bytes, a.WireBytes - b.WireBytes}
}

// makeTraffic sends what ends in each way: TCP, a datagram or two, and pings
// that go on until stop.
func makeTraffic(t *testing.T, from, to *lab.Host) (stop func()) {
	t.Helper()
	for _, addr := range []netip.Addr{to.Addr4(), to.Addr6()} {
		if _, err := traffic.Bulk(t.Context(), from, to, traffic.BulkConfig{To: netip.AddrPortFrom(addr, 0), Bytes: 3_000_000}); err != nil {
			t.Fatal(err)
		}
		if _, err := traffic.Datagrams(t.Context(), to, from, traffic.DatagramConfig{
			To: netip.AddrPortFrom(sameFamily(from, addr), 0), Count: 1000, Size: 500, Flows: 4,
		}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var pinging sync.WaitGroup
	pinging.Go(func() {
		_, err := traffic.Echo(ctx, from, traffic.EchoConfig{
			To: to.Addr4(), Count: 1 << 20, Size: 56, ID: 4711, Interval: 20 * time.Millisecond,
		})
		if ctx.Err() == nil {
			t.Errorf("pings ended: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		pinging.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func sameFamily(h *lab.Host, addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return h.Addr4()
	}
	return h.Addr6()
}

// waitEndReasons waits for a record of each reason but the last one, and then
// for the pings to be reported: they will go on for a while before they are again.
func waitEndReasons(t *testing.T, a *agent) {
	t.Helper()
	reported := 0
	await.Success(t, func() error {
		seen := endReasons(t, a)
		reported = seen["active_timeout"]
		if seen["idle_timeout"] == 0 || seen["end_of_flow"] == 0 {
			return notYet("records ended by %v", seen)
		}
		return nil
	})
	await.Success(t, func() error {
		if seen := endReasons(t, a); seen["active_timeout"] <= reported {
			return notYet("records ended by %v", seen)
		}
		return nil
	})
}

// endReasons counts the records written so far.
func endReasons(t *testing.T, a *agent) map[string]int {
	t.Helper()
	seen := map[string]int{}
	for _, r := range readWholeLines(t, a.path("flows.jsonl")) {
		seen[r.EndReason]++
	}
	return seen
}

func rightEnds(t *testing.T, records []record) {
	t.Helper()
	pings := map[string]int{}
	for _, r := range records {
		switch {
		case r.Proto == 6 && r.EndReason != "end_of_flow":
			t.Errorf("a transfer that was over ended by %s: %+v", r.EndReason, r)
		case r.Proto == 17 && r.EndReason != "idle_timeout":
			t.Errorf("datagrams of long ago ended by %s: %+v", r.EndReason, r)
		case r.Proto == 1:
			pings[r.EndReason]++
		}
		if r.Last.Before(r.First) || time.Since(r.First) > time.Minute || time.Until(r.Last) > time.Second {
			t.Errorf("from %v to %v", r.First, r.Last)
		}
	}
	if pings["active_timeout"] == 0 || pings["forced_end"] != 2 || pings["idle_timeout"] != 0 {
		t.Errorf("pings that went on ended by %v", pings)
	}
}

// sameSums holds nfdump's records against the JSON lines.
func sameSums(t *testing.T, lines []record, theirs []flowAmount) {
	t.Helper()
	type key struct {
		direction string
		proto     int
	}
	type count struct{ records, packets, bytes uint64 }
	ours, got := map[key]count{}, map[key]count{}
	for _, r := range lines {
		c := ours[key{r.Direction, r.Proto}]
		ours[key{r.Direction, r.Proto}] = count{c.records + 1, c.packets + r.Packets, c.bytes + r.Bytes}
	}
	for _, r := range theirs {
		k := key{[]string{"ingress", "egress"}[r.Direction], r.Proto}
		c := got[k]
		got[k] = count{c.records + 1, c.packets + r.Packets, c.bytes + r.Bytes}
	}
	if fmt.Sprint(ours) != fmt.Sprint(got) {
		t.Errorf("by direction and protocol: JSON lines have {records packets bytes} %v, nfdump %v", ours, got)
	}
}

// attached is what bpftool and tc find on a host's interfaces.
func attached(t *testing.T, h *lab.Host) string {
	t.Helper()
	out := ""
	for line := range strings.Lines(must(t, h, "bpftool", "net", "show")) {
		if strings.Contains(line, "waymark") {
			out += line
		}
	}
	return out
}

// get fetches a page from where a host reaches it.
func get(t *testing.T, h *lab.Host, url string) string {
	t.Helper()
	client := http.Client{Timeout: await.Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (conn net.Conn, err error) {
			err = h.Do(func() error {
				conn, err = net.Dial(network, address)
				return err
			})
			return conn, err
		},
	}}
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	return string(body)
}

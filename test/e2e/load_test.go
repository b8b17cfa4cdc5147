package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// residentMemory is that of the process alone: no files, no shared maps.
func residentMemory(t *testing.T, pid int) int { return statusMemory(t, pid, "RssAnon") }

// statusMemory is a line of a process's status, in bytes.
func statusMemory(t *testing.T, pid int, name string) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, name+": %d kB", &n); err == nil {
			return n << 10
		}
	}
	t.Fatalf("no %s in %s", name, text)
	return 0
}

// TestMoreFlowsThanSpace: 60,000 flows at a time on a table of 16,384. Every
// packet and byte is in a record; unattributed packets are reported, and the
// agent stays as small as it was configured to.
func TestMoreFlowsThanSpace(t *testing.T) {
	t.Parallel()
	const flows, rounds, capacity = 60_000, 2, 16384
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			t.Parallel()
			h := oneLink(t)
			a := start(t, setup{host: h, config: "probe: " + probe + `
flow: {max_entries: 16384, scan_interval: 500ms, idle_timeout: 1s, active_timeout: 10s}
interfaces: [near]
export: [{jsonl: {path: DIR/flows.jsonl}}]
api: {socket: DIR/agent.sock, history: 10000}
`})
			addFrames := packet.Eth().IPv6("2001:db8::", "2001:db8:ffff::1").UDP(1000, 2000).Payload(50).Bytes()
			for range rounds {
				newFlows(t, h, flows, 0)
			}
			counters := readCounters(t, h, "near")
			var s obs.Status
			await.Success(t, func() error { // until the last packet is in the status, one way or the other
				s = a.status(t)
				var frames uint64
				for _, i := range s.Interfaces {
					frames += i.Frames
					for _, u := range i.Uncounted {
						frames += u.Frames
					}
				}
				if frames != flows*rounds {
					return notYet("%d frames of %d", frames, flows*rounds)
				}
				return nil
			})
			memory := residentMemory(t, a.Process.Pid)
			a.stop(t)

			records := readLines(t, a.path("flows.jsonl"))
			total := sum(records, func(*record) bool { return true })
			for _, i := range s.Interfaces {
				for _, u := range i.Uncounted {
					if probe == "ebpf" {
						t.Errorf("in no record: %+v", u)
					}
					total.Packets += u.Packets
					total.WireBytes += u.Packets * uint64(len(addFrames))
				}
			}
			want := amount{Packets: flows * rounds, WireBytes: uint64(flows * rounds * len(addFrames))}
			if total.Packets != want.Packets || total.WireBytes != want.WireBytes || counters.rx.Packets != want.Packets {
				t.Errorf("records hold %+v, sent were %+v, the interface counted %+v", total, want, counters.rx)
			}
			apart := map[string]uint64{}
			var together uint64
			for _, r := range records {
				if r.Unattributed {
					together += r.Packets
				} else {
					apart[r.Src] += r.Packets
				}
			}
			for src, packets := range apart {
				if packets > rounds {
					t.Errorf("%d packets from %s, of %d", packets, src, rounds)
					break
				}
			}
			if len(apart) < capacity {
				t.Errorf("%d flows were attributed, and there is space for %d", len(apart), capacity)
			}
			reported := s.Table.Unattributed
			if together > 0 && reported == 0 || probe == "ebpf" && s.Table.Evicted == 0 {
				t.Errorf("%d packets were not attributed; the status says: %+v", together, s.Table)
			}
			t.Logf("%d flows attributed, %d packets not; %d evicted; %d MB resident", len(apart), together, s.Table.Evicted, memory>>20)
			if memory > 128<<20 {
				t.Errorf("%d MB resident", memory>>20)
			}
		})
	}
}

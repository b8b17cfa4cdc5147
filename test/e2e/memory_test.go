package e2e

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

var memoryMatrix = flag.Bool("memory.matrix", false, "run the floods of TestFloodUnderMemoryLimit under every limit")

// TestFloodUnderMemoryLimit: a flood of new flows does not get an agent with the
// default configuration killed, however small the limit, and every packet is in a
// record: those of the flood, and those of the flush on SIGTERM.
func TestFloodUnderMemoryLimit(t *testing.T) {
	t.Parallel()
	type flood struct {
		limit   int // of memory
		flows   int
		seconds int
		more    string // configuration
	}
	floods := []flood{
		{80e6, 300_000, 5, ""},
		{200e6, 300_000, 5, "flow: {scan_interval: 1s}\n"},
	}
	if *memoryMatrix {
		floods = nil
		for _, limit := range []int{80e6, 100e6, 160e6, 200e6} {
			floods = append(floods, flood{limit, 300_000, 5, ""})
		}
		for _, limit := range []int{256e6, 384e6} {
			floods = append(floods, flood{limit, 600_000, 10, ""})
		}
		for _, limit := range []int{80e6, 384e6} { // beyond what was reported
			floods = append(floods, flood{limit, 1_500_000, 15, ""}, flood{limit, 600_000, 10, "flow: {scan_interval: 1s, idle_timeout: 1s}\n"})
		}
	}
	for _, f := range floods {
		t.Run(fmt.Sprintf("%dMB/%d", f.limit/1e6, f.flows), func(t *testing.T) {
			if !*memoryMatrix {
				t.Parallel()
			}
			group := memoryGroup(t, f.limit)
			h := oneLink(t)
			a := start(t, setup{host: h, wrap: inGroup(group), config: f.more + "interfaces: [near]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
			before := readCounters(t, h, "near")
			pacedFlows(t, h, f.flows, time.Duration(f.seconds)*time.Second, keepUp(t, a))
			counted := minus(readCounters(t, h, "near").rx, before.rx)
			s := a.status(t)
			a.stop(t)
			peak := groupNumber(t, group, "memory.max_usage_in_bytes", "memory.peak")
			if n := oomKills(t, group); n != 0 {
				t.Errorf("%d processes were killed for want of memory", n)
			}
			total := sumFile(t, a.path("flows.jsonl"))
			// On a busy machine, writing all flows may take longer than the agent waits when it ends. It reports the rest,
			// records of one packet each.
			if rest := notSent(t, a); counted.Packets < uint64(f.flows) || total.packets+rest != counted.Packets {
				t.Errorf("%d packets in records, %d reported as lost at the end, the interface counted %d, %d were sent", total.packets, rest, counted.Packets, f.flows)
			}
			if s.Memory.Limit == 0 || s.Memory.Limit > uint64(f.limit) {
				t.Errorf("the agent plans with a limit of %d", s.Memory.Limit)
			}
			t.Logf("%d records, %d packets unattributed; %d flows evicted and %d shed before the end; peak %d of %d MB",
				total.records, total.unattributed, s.Table.Evicted, s.Table.Shed, peak/1e6, f.limit/1e6)
			if total.unattributed > counted.Packets/10 {
				t.Errorf("%d of %d packets are unattributed", total.unattributed, counted.Packets)
			}
		})
	}
}

// keepUp has a flood go on when the agent has had a turn: what leaves a full table waits in a ring that the agent has
// to read in time, and how long a busy machine keeps it from that says nothing about memory.
func keepUp(t *testing.T, a *agent) func(sent int) {
	t.Helper()
	c := api.NewClient(a.socket)
	var lost uint64
	pause := time.Duration(0)
	return func(sent int) {
		if sent%1024 != 0 {
			return
		}
		s, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if pause /= 2; s.Table.Unattributed > lost {
			pause = min(max(4*pause, 10*time.Millisecond), time.Second)
		}
		lost = s.Table.Unattributed
		time.Sleep(pause)
	}
}

// notSent is how many records the log of an agent that ended reports as lost at shutdown.
func notSent(t *testing.T, a *agent) (n uint64) {
	t.Helper()
	if m := regexp.MustCompile(`reason=shutdown records=(\d+)`).FindStringSubmatch(a.stderr.String()); m != nil {
		if _, err := fmt.Sscan(m[1], &n); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestLimitTooSmall: where not even the least fits, the agent refuses to start, says
// which limit it needs, and starts with that.
func TestLimitTooSmall(t *testing.T) {
	t.Parallel()
	h := labtest.NewHost(t)
	must(t, h, "ip", "link", "set", "lo", "up")
	begin := func(limit int) (*agent, chan struct{}) {
		return launch(t, setup{host: h, wrap: inGroup(memoryGroup(t, limit)), config: "interfaces: [lo]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
	}
	a, _ := begin(16 << 20)
	code := a.wait(t)
	wants(t, result{stderr: a.stderr.String(), code: code}, 3, "limit is 16 MiB", "raise the limit")
	_, text, _ := strings.Cut(a.stderr.String(), "at least ")
	var need int
	if _, err := fmt.Sscanf(text, "%d MiB", &need); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	a, ready := begin((need + 1) << 20) // what the shell holds is not available
	select {
	case <-ready:
	case <-a.ended:
		t.Fatalf("with %d MiB, exit code %d: %s", need+1, a.ProcessState.ExitCode(), a.stderr)
	case <-time.After(await.Patience):
		t.Fatalf("not ready within %v", await.Patience)
	}
	a.stop(t)
}

// fileSum is what the records of a file add up to.
type fileSum struct{ records, packets, unattributed uint64 }

// sumFile reads a file of any length.
func sumFile(t *testing.T, path string) (sum fileSum) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// A decoder would take longer for these lines than the agent for the flows.
		_, rest, _ := bytes.Cut(lines.Bytes(), []byte(`"packets":`))
		digits, _, _ := bytes.Cut(rest, []byte(","))
		packets, err := strconv.ParseUint(string(digits), 10, 64)
		if err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		sum.records++
		sum.packets += packets
		if bytes.Contains(rest, []byte(`"unattributed":true`)) {
			sum.unattributed += packets
		}
	}
	return sum
}

// groupNumber reads a number of a control group, of whichever version.
func groupNumber(t *testing.T, group, version1, version2 string) (n int) {
	t.Helper()
	for _, name := range []string{version1, version2} {
		if b, err := os.ReadFile(filepath.Join(group, name)); err == nil {
			if _, err := fmt.Sscan(string(b), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("neither %s nor %s in %s", version1, version2, group)
	return 0
}

// oomKills is how many processes of a group the kernel killed.
func oomKills(t *testing.T, group string) (n int) {
	t.Helper()
	for _, name := range []string{"memory.oom_control", "memory.events"} {
		b, err := os.ReadFile(filepath.Join(group, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if _, err := fmt.Sscanf(line, "oom_kill %d", &n); err == nil {
				return n
			}
		}
	}
	t.Fatalf("no account of killed processes in %s", group)
	return 0
}

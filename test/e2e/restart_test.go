package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// counting is a configuration that counts on all links of a lab's host.
const counting = quick + "interfaces: [LINKS]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"

// transfer sends bytes over TCP and returns the port they came from.
func transfer(t *testing.T, from, to *lab.Host) (port int, segments uint64) {
	t.Helper()
	r, err := traffic.Bulk(t.Context(), from, to, traffic.BulkConfig{To: netip.AddrPortFrom(to.Addr6(), 0), Bytes: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	return int(r.From.Port()), uint64(r.Sender.SegmentsOut)
}

// has holds the records of a transfer against what the sender's TCP counted.
func has(t *testing.T, records []record, port int, segments uint64) {
	t.Helper()
	got := sum(records, func(r *record) bool { return r.Proto == 6 && r.Sport == port && r.Direction == "egress" })
	if got.Packets != segments {
		t.Errorf("%d packets of the transfer from port %d, its sender counted %d", got.Packets, port, segments)
	}
}

// gone waits until the programs of an agent are.
func gone(t *testing.T, programs []obs.Program) {
	t.Helper()
	for _, p := range programs {
		await.Success(t, func() error {
			left, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID))
			if err != nil {
				return nil
			}
			left.Close()
			return notYet("program %s (%d) is still there", p.Name, p.ID)
		})
	}
}

// TestKilled: after SIGKILL nothing is left but the socket, and the next agent
// takes that over and counts on.
func TestKilled(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	first := start(t, setup{host: alpha, config: counting})
	programs := first.status(t).Programs
	first.kill()
	gone(t, programs)
	if got := attached(t, alpha); got != "" {
		t.Errorf("a killed agent left %s", got)
	}
	if !exists(first.socket) {
		t.Fatal("no socket is left: this tests nothing")
	}
	second := start(t, setup{host: alpha, config: counting + "api: {socket: " + first.socket + "}\n"})
	port, segments := transfer(t, alpha, beta)
	second.stop(t)
	has(t, readLines(t, second.path("flows.jsonl")), port, segments)
}

// TestSameSocket: a second agent gets the PID of the first, and harms it not.
func TestSameSocket(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	first := start(t, setup{host: alpha, config: counting})
	second, _ := launch(t, setup{host: alpha, config: counting + "api: {socket: " + first.socket + "}\n"})
	if code := second.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	said := second.stderr.String()
	for _, want := range []string{first.socket, fmt.Sprintf("pid %d", first.Process.Pid), "--socket"} {
		if !strings.Contains(said, want) {
			t.Errorf("the second agent says %q, which lacks %q", said, want)
		}
	}
	port, segments := transfer(t, alpha, beta)
	first.status(t)
	first.stop(t)
	has(t, readLines(t, first.path("flows.jsonl")), port, segments)
}

// TestTwoAgents: agents with sockets of their own count everything, each; one
// that goes takes nothing from the other.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	first := start(t, setup{host: alpha, config: counting})
	second := start(t, setup{host: alpha, config: counting})
	both, segments := transfer(t, alpha, beta)
	first.stop(t)
	has(t, readLines(t, first.path("flows.jsonl")), both, segments)
	alone, more := transfer(t, alpha, beta)
	second.covered(t)
	second.stop(t)
	records := readLines(t, second.path("flows.jsonl"))
	has(t, records, both, segments)
	has(t, records, alone, more)
}

// TestSignals: SIGHUP makes the agent open its file again, as log rotation wants
// it; SIGINT is as good as SIGTERM.
func TestSignals(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: counting})
	old := a.path("flows.jsonl.1")
	transfer(t, alpha, beta)
	await.Success(t, func() error {
		if readText(t, a.path("flows.jsonl")) == "" {
			return notYet("no record is written")
		}
		return nil
	})
	if err := unix.Rename(a.path("flows.jsonl"), old); err != nil {
		t.Fatal(err)
	}
	a.signal(unix.SIGHUP)
	port, segments := transfer(t, alpha, beta)
	a.signal(unix.SIGINT)
	if code := a.wait(t); code != 0 {
		t.Errorf("exit code %d after SIGINT", code)
	}
	both := append(readLines(t, old), readLines(t, a.path("flows.jsonl"))...)
	has(t, both, port, segments)
}

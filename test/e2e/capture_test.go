package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/test/await"
)

// capturing is a waymark capture that runs.
type capturing struct {
	*exec.Cmd
	stderr strings.Builder
	done   chan error
}

// capture starts one and waits until the agent captures.
func (a *agent) capture(t *testing.T, args ...string) *capturing {
	t.Helper()
	c := &capturing{Cmd: exec.Command(program, append([]string{"capture", "--socket", a.socket}, args...)...), done: make(chan error, 1)}
	c.Stderr = &c.stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	go func() { c.done <- c.Wait() }()
	before := a.status(t).API.Followers
	await.True(t, "a reader of packets", func() bool { return a.status(t).API.Followers > 0 || before > 0 })
	return c
}

// ends sends until a capture ends: packets from before the agent captures are in no file.
func (c *capturing) ends(t *testing.T, send func()) {
	t.Helper()
	await.True(t, "the end of a capture", func() bool {
		select {
		case err := <-c.done:
			if err != nil {
				t.Fatalf("%v: %s", err, c.stderr.String())
			}
			return true
		default:
			send()
			return false
		}
	})
}

// tshark reads fields of a capture file; it must find nothing wrong with it.
func tshark(t *testing.T, file string, fields ...string) [][]string {
	t.Helper()
	args := []string{"-r", file, "-T", "fields", "-E", "separator=|", "-E", "occurrence=a"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var out, errs strings.Builder
	cmd := exec.Command("tshark", args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || strings.Contains(errs.String(), "cut short") {
		t.Fatalf("tshark: %v: %s", err, errs.String())
	}
	var rows [][]string
	for line := range strings.Lines(out.String()) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "|"))
	}
	return rows
}

// TestCapture: tshark and capinfos read what waymark capture writes, with verdict and rule of each packet, at XDP and at tc.
func TestCapture(t *testing.T) {
	t.Parallel()
	for mode, verdicts := range map[string][2]string{"native": {"eBPF_XDP", "eBPF_XDP"}, "tc": {"eBPF_TC", "eBPF_TC"}} {
		_, alpha, beta := newLab(t)
		a := start(t, setup{host: alpha, config: quick + fmt.Sprintf("interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: %s}\n", mode)})
		wants(t, a.rules(t, "add", "drop", "icmp", "type", "8"), 0)
		drop := a.rule(t, "drop icmp type 8")
		file := a.path("dropped.pcapng")
		c := a.capture(t, "--dropped", "-w", file, "-c", "2", "-s", "60")
		c.ends(t, func() { execute(t, beta, "ping", "-c2", "-i0.2", "-W0.2", alpha.Addr4().String()) })
		if got := c.stderr.String(); !strings.Contains(got, "2 packets captured") {
			t.Error(got)
		}
		rows := tshark(t, file, "frame.interface_name", "frame.comment", "icmp.type", "frame.cap_len", "frame.len", "frame.verdict.ebpf_xdp", "frame.verdict.ebpf_tc")
		if len(rows) != 2 {
			t.Fatalf("%s: %v", mode, rows)
		}
		for _, r := range rows {
			comment := fmt.Sprintf("verdict drop, reason drop, rule %d: drop icmp type 8", drop.ID)
			verdict := map[string]string{"native": r[5], "tc": r[6]}[mode]
			if !strings.HasPrefix(r[0], "to-") || !strings.Contains(r[1], comment) || r[2] != "8" || r[3] != "60" || r[4] != "98" || verdict == "" {
				t.Errorf("%s: %q, want %q, verdict %v", mode, r, comment, verdicts)
			}
		}
		info, err := exec.Command("capinfos", "-M", file).CombinedOutput()
		if err != nil || !strings.Contains(string(info), "Number of packets:   2") && !strings.Contains(string(info), "Number of packets = 2") {
			t.Errorf("capinfos: %v: %s", err, info)
		}

		// The same as JSON.
		lines := spawn(t, nil, command(program, "capture", "--socket", a.socket, "--dropped", "-o", "jsonl", "-c", "1"))
		await.True(t, "a packet as JSON", func() bool {
			arrives(t, beta, alpha, false)
			return strings.HasSuffix(lines.stdout.String(), "\n")
		})
		var p gateservice.Captured
		if err := json.Unmarshal([]byte(lines.stdout.String()), &p); err != nil || p.Verdict != "drop" || p.Rule == nil || p.Rule.ID != drop.ID || len(p.Data) != 98 {
			t.Errorf("%s: %v: %s", mode, err, lines.stdout)
		}
		if code := lines.wait(t); code != 0 {
			t.Errorf("exit code %d: %s", code, lines.stderr)
		}

		// What is named by conditions, whatever its verdict: the other way round, to stdout.
		c = &capturing{Cmd: exec.Command(program, "capture", "--socket", a.socket, "-w", "-", "-c", "1", "icmp", "src", beta.Addr4().String()), done: make(chan error, 1)}
		out, err := os.Create(a.path("out.pcapng"))
		if err != nil {
			t.Fatal(err)
		}
		c.Stdout, c.Stderr = out, &c.stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { c.done <- c.Wait() }()
		await.True(t, "a rule that samples", func() bool { return strings.Contains(a.rules(t, "list").stdout, "sample icmp src") })
		c.ends(t, func() { execute(t, alpha, "ping", "-c2", "-i0.3", "-W0.3", beta.Addr4().String()) })
		out.Close()
		rows = tshark(t, out.Name(), "icmp.type", "frame.comment")
		if len(rows) != 1 || rows[0][0] != "0" || !strings.Contains(rows[0][1], "verdict pass") || !strings.Contains(rows[0][1], "sampled by rule") {
			t.Errorf("%s: %q", mode, rows)
		}
		await.True(t, "no rule that samples", func() bool { return !strings.Contains(a.rules(t, "list").stdout, "sample icmp src") })
		stranger(t, a)
	}
}

// stranger may not read packets, and the error says why.
func stranger(t *testing.T, a *agent) {
	t.Helper()
	for path, mode := range map[string]os.FileMode{a.socket: 0o666, filepath.Dir(a.socket): 0o711, filepath.Dir(filepath.Dir(a.socket)): 0o711} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "capture", "--socket", a.socket)
	wants(t, finish(t, nil, cmd), 1, "only root and the agent's user may read packets")
}

// TestFlowRules: packets of rules that say so are in no flow record, at XDP, and the coverage is complete.
func TestFlowRules(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: native}\n"})
	arrives(t, beta, alpha, true)
	wants(t, a.rules(t, "add", "no-flow", "icmp", "type", "8"), 0)
	for range 3 {
		arrives(t, beta, alpha, true)
	}
	s := a.covered(t)
	for _, i := range s.Interfaces {
		var noFlow uint64
		for _, u := range i.Uncounted {
			if u.Reason == "no_flow" {
				noFlow = u.Packets
			}
		}
		if i.Direction == "ingress" && noFlow != 3 {
			t.Errorf("%d packets without a record, want 3: %+v", noFlow, i)
		}
	}
	var answer struct{ Total struct{ Packets uint64 } }
	r := a.ask(t, "flows", "icmp_type 8 and dir ingress", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || answer.Total.Packets != 1 {
		t.Errorf("%d pings in flow records, want 1: %v, %+v", answer.Total.Packets, err, r)
	}
	wants(t, a.rules(t, "del", fmt.Sprint(a.rule(t, "no-flow icmp type 8").ID)), 0)
	arrives(t, beta, alpha, true)
	await.True(t, "flow records again", func() bool {
		r := a.ask(t, "flows", "icmp_type 8 and dir ingress", "-o", "json")
		return json.Unmarshal([]byte(r.stdout), &answer) == nil && answer.Total.Packets == 2
	})
}

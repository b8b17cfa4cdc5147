package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/test/await"
)

// TestTap: tshark reads what waymark tap takes off an interface; the stack has nothing of that, and all else. Once the tap is killed, the
// stack has everything, and another tap can begin.
func TestTap(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	iface := alpha.Interfaces[0].Name
	const config = quick + `interfaces: [to-*]
hints: {metadata: [to-*], metadata_time: true, sockets: tapped}
gate: {interfaces: [to-*], mode: native}
`
	a := start(t, setup{host: alpha, config: config})
	tap := func(args ...string) *exec.Cmd {
		return exec.Command(program, append([]string{"tap", iface, "--socket", a.socket}, args...)...)
	}
	wants(t, a.rules(t, "add", "tap", "icmp", "type", "8", "len", ">", "1000"), 0)
	selected := func() bool {
		return execute(t, beta, "ping", "-c1", "-s1000", "-W0.2", alpha.Addr4().String()).code == 0
	}
	await.True(t, "the stack, while nobody taps", selected)

	file := a.path("tapped.pcapng")
	p := spawn(t, alpha, tap("-w", file, "-c", "3"))
	await.True(t, "the end of a tap", func() bool {
		selected()
		select {
		case <-p.ended:
			return true
		default:
			return false
		}
	})
	if code := p.wait(t); code != 0 || !strings.Contains(p.stderr.String(), "3 packets written") {
		t.Errorf("exit code %d: %s", code, p.stderr.String())
	}
	rows := tshark(t, file, "frame.interface_name", "icmp.type", "frame.len", "frame.verdict.ebpf_xdp")
	if len(rows) != 3 {
		t.Errorf("%q", rows)
	}
	for _, row := range rows {
		if row[0] != iface || row[1] != "8" || row[2] != "1042" || row[3] != "4" {
			t.Errorf("%q", row)
		}
	}

	file = a.path("killed.pcapng")
	p = spawn(t, alpha, tap("-w", file))
	await.True(t, "a packet that another tap has taken", func() bool {
		selected()
		info, err := os.Stat(file)
		return err == nil && info.Size() > 1000
	})
	if got := execute(t, beta, "ping", "-c1", "-W10", alpha.Addr4().String()); got.code != 0 {
		t.Errorf("what no rule selects is lost: %s", got.stdout)
	}
	second := finish(t, alpha, tap("-w", file))
	if info, err := os.Stat(file); second.code == 0 || !strings.Contains(second.stderr, "somebody else taps it") || err != nil || info.Size() < 1000 {
		t.Errorf("a second tap: %+v; of the file of the first one is left: %+v, %v", second, info, err)
	}
	p.kill()
	await.True(t, "the stack, after a tap was killed", selected)

	for text, args := range map[string][]string{
		"hints.metadata": {"lo", "-w", "-"},
		"-w FILE":        {iface},
	} {
		cmd := exec.Command(program, append(append([]string{"tap"}, args...), "--socket", a.socket)...)
		if got := finish(t, alpha, cmd); got.code == 0 || !strings.Contains(got.stderr, text) {
			t.Errorf("%v: exit code %d: %s", args, got.code, got.stderr)
		}
	}

	// Another agent has programs of its own, and an interface may go: the tap ends, and says why.
	ends := func(end func(), says string) {
		t.Helper()
		p := spawn(t, alpha, tap("-w", file))
		await.True(t, "a tap", func() bool { return !selected() })
		end()
		if code := p.wait(t); code == 0 || !strings.Contains(p.stderr.String(), says) {
			t.Errorf("exit code %d: %s", code, p.stderr.String())
		}
	}
	ends(func() {
		a.stop(t)
		start(t, setup{host: alpha, config: config + "api: {socket: " + a.socket + "}\n"})
	}, "the agent has restarted")
	wants(t, a.rules(t, "add", "tap", "icmp", "type", "8", "len", ">", "1000"), 0)
	ends(func() { must(t, alpha, "ip", "link", "del", iface) }, "the interface is gone")
}

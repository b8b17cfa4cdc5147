package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/test/await"
)

// TestAnalyze: a host joins an analyzer with a token; the agent's records arrive exactly, also those from when the analyzer was
// killed, and are asked for as of an agent.
func TestAnalyze(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	dir := openDir(t)
	socket := filepath.Join(dir, "analyze.sock")
	config := filepath.Join(dir, "analyze.yaml")
	writeText(t, config, "analyze: {listen: '127.0.0.1:8476', names: [127.0.0.1], path: "+filepath.Join(dir, "data")+"}\napi: {socket: "+socket+"}\n")
	must(t, alpha, "ip", "link", "set", "lo", "up")
	run := func() *process {
		p := spawn(t, alpha, command(program, "analyze", "--config", config))
		await.Success(t, func() error {
			if r := waymark(t, "status", "--socket", socket); r.code != 0 {
				return notYet("%s", r.stderr)
			}
			return nil
		})
		return p
	}
	analyzer := run()
	token := strings.TrimSpace(waymark(t, "analyze", "token", "athos", "--config", config).stdout)
	lines := must(t, alpha, program, "join", "https://127.0.0.1:8476", token, "--dir", filepath.Join(dir, "host"))
	wants(t, execute(t, alpha, program, "join", "https://127.0.0.1:8476", token, "--dir", filepath.Join(dir, "again")), 1, "used or too old", "waymark analyze token")
	lines = strings.Replace(lines, "{url:", "{path: "+filepath.Join(dir, "queue")+", url:", 1)

	a := start(t, setup{host: alpha, config: quick + "interfaces: [to-*]\n" + lines})
	sent := func(n int) {
		t.Helper()
		for range n {
			must(t, alpha, "bash", "-c", "echo x >/dev/udp/"+beta.Addr6().String()+"/9")
		}
	}
	sum := func(of string) (packets uint64) {
		r := waymark(t, "flows", "udp dst port 9", "--socket", of, "--by", "host", "-o", "json", "--everywhere")
		var answer struct {
			Rows []struct {
				Host    string
				Packets uint64
			}
		}
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || len(answer.Rows) > 1 {
			t.Fatalf("%v: %s %s", err, r.stdout, r.stderr)
		}
		for _, row := range answer.Rows {
			if of == socket && row.Host != "athos" {
				t.Errorf("a record of host %q, whose certificate names athos", row.Host)
			}
			packets += row.Packets
		}
		return packets
	}
	equal := func(want uint64) {
		t.Helper()
		await.Success(t, func() error {
			if own, all := sum(a.socket), sum(socket); own != want || all != want {
				return notYet("%d datagrams were sent; the agent has %d, the analyzer %d", want, own, all)
			}
			return nil
		})
	}
	sent(5)
	equal(5)
	analyzer.kill()
	sent(4)
	await.Success(t, func() error {
		s := a.status(t)
		if e := s.Exporters; len(e) != 1 || e[0].Name != "analyzer" || e[0].Queued == 0 || !strings.Contains(e[0].LastError, "start the analyzer") {
			return notYet("%+v", e)
		}
		return nil
	})
	run()
	equal(9)
	wants(t, waymark(t, "status", "--socket", socket), 0)
	if r := waymark(t, "flows", "--by", "host", "--socket", socket); !strings.Contains(r.stdout, "\nathos ") {
		t.Errorf("no column says which host it was:\n%s", r.stdout)
	}
	a.stop(t)
}

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab/labtest"
)

// wants holds what a command said against what it has to say.
func wants(t *testing.T, r result, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; it said: %s", r.code, code, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("stderr lacks %q: %s", text, r.stderr)
		}
	}
	if strings.Contains(r.stderr, "goroutine ") || strings.Contains(r.stderr, "panic") {
		t.Errorf("a panic: %s", r.stderr)
	}
	if lines := strings.Count(r.stderr, "\n"); code != 0 && lines > 12 {
		t.Errorf("%d lines to say one thing: %s", lines, r.stderr)
	}
}

// TestBadConfiguration: run and check refuse it with exit code 2, and name the
// place and what is allowed.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		yaml  string
		texts []string // in addition to the file's name
	}{
		"unknown key":       {"interfaces: [lo]\nflow:\n  scan_intervall: 1s\n", []string{":3:3:", "did you mean scan_interval"}},
		"wrong type":        {"interfaces: [lo]\nflow: {max_entries: lots}\n", []string{":2:21:", "0 to 67108864"}},
		"no unit":           {"flow: {scan_interval: 10}\n", []string{":1:23:", "10s"}},
		"below zero":        {"flow: {max_entries: -1}\n", []string{":1:21:", "0 to 67108864"}},
		"overflow":          {"flow: {max_entries: 99999999999999999999}\n", []string{":1:21:", "0 to 67108864"}},
		"impossible":        {"flow:\n  sampling: 0\n", []string{":2:13:", "1 to"}},
		"not a power":       {"flow:\n  ring_size: 5000\n", []string{":2:14:", "4KiB and 8KiB"}},
		"twice":             {"interfaces: [lo]\nlog: {}\ninterfaces: [lo]\n", []string{":3:1:", ":1:1"}},
		"bracket":           {"interfaces: [lo\nflow: {}\n", []string{":1", "not YAML"}},
		"tab":               {"flow:\n\tsampling: 2\n", []string{":2", "tabs"}},
		"a word":            {"yes please\n", []string{":1:1:", "interfaces"}},
		"a list":            {"- interfaces\n", []string{":1:1:", "interfaces"}},
		"binary":            {"interfaces: [lo]\n\x00\x01\x02", []string{":2", "not YAML"}},
		"two documents":     {"log: {}\n---\nlog: {}\n", []string{"second document"}},
		"unknown exporter":  {"export:\n- mqtt: {}\n", []string{":2:3:", "jsonl, ipfix, otlp, analyzer, clickhouse, kafka, prometheus"}},
		"two exporters":     {"export: [{jsonl: {}, ipfix: {}}]\n", []string{":1:22:"}},
		"collector":         {"export: [{ipfix: {collector: \"http://[::1]:4739\"}}]\n", []string{":1:30:", "udp://"}},
		"open to all":       {"api: {listen: \"0.0.0.0:8080\"}\n", []string{":1:15:", "127.0.0.1"}},
		"open to all, IPv6": {"api: {listen: \"[::]:8080\"}\n", []string{":1:15:", "[::1]"}},
		"any address":       {"api: {listen: \":8080\"}\n", []string{":1:15:", "127.0.0.1"}},
		"relative socket":   {"api: {socket: agent.sock}\n", []string{":1:15:", "absolute"}},
		"long socket":       {"api: {socket: /tmp/" + strings.Repeat("x", 200) + "}\n", []string{":1:15:", "107"}},
		"word":              {"log: {level: loud}\n", []string{":1:14:", "debug, info, warn or error"}},
		"interface":         {"interfaces: [averyveryverylongname]\n", []string{":1:14:", "15 bytes"}},
		"namespace":         {"netns: [../../etc/passwd]\n", []string{":1:9:", "ip netns"}},
		"anchors":           {"a: &a [*a, *a]\n", []string{":1:1:"}},
		"many nested":       {strings.Repeat("[", 20000), []string{":1"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "waymark.yaml")
			if err := os.WriteFile(file, []byte(c.yaml), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"run", "--config", file}, {"config", "check", file}} {
				r := waymark(t, args...)
				wants(t, r, 2, append(c.texts, file)...)
				if r.stdout != "" {
					t.Errorf("%v: stdout has %q", args, r.stdout)
				}
			}
		})
	}
}

// TestBadCommandLine: exit code 2 and what is allowed; nothing is attached.
func TestBadCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line string
		code int
		text string
	}{
		{"run --config /nonexistent.yaml", 2, "no such file"},
		{"run --config /tmp", 2, "is a directory"},
		{"run --config /dev/zero", 2, "larger than"},
		{"run -i", 2, "missing value after --interface IFACE"},
		{"run -i lo --set flow.smapling=2", 2, "flow.sampling"},
		{"run -i lo --set flow.sampling", 2, "KEY=VALUE|write it like"},
		{"run -i lo --probe xdp", 2, "auto, ebpf or afpacket"},
		{"run -i lo extra", 2, "extra"},
		{"runn", 2, "did you mean run"},
		{"--frobnicate", 2, "unknown flag"},
		{"config", 2, "check, clickhouse, dump"},
		{"config check", 2, "FILE"},
		{"flows proto tpc", 2, "did you mean tcp"},
		{"flows dport ==", 2, "dport"},
		{"flows (((", 2, "filter"},
		{"flows --by colour", 2, "conversation"},
		{"flows --sort colour", 2, "bytes"},
		{"flows -o xml", 2, "jsonl"},
		{"flows --since tomorrow", 2, "5m"},
		{"flows --limit -1", 2, "--limit"},
		{"flows --follow -o json", 2, "jsonl"},
		{"flows --read /nonexistent.pcap", 1, "no such file"},
		{"flows --read /etc/passwd", 1, "pcap"},
		{"flows --socket /nonexistent/agent.sock", 1, "waymark run"},
		{"status --socket /nonexistent/agent.sock", 1, "waymark run"},
		{"top", 2, "terminal"},
		{"doctor nosuchiface0", 2, "nosuchiface0"},
		{"hints nosuchiface0", 2, "nosuchiface0"},
		{"lab up star", 2, "chain, pair"},
		{"lab up pair --mtu 12", 2, "1280"},
		{"lab up pair --prefix ../x", 2, "prefix"},
		{"lab exec --prefix wme-none- alpha -- true", 1, "waymark lab up"},
		{"completion tcsh", 2, "bash"},
		{"decode /nonexistent.pcap", 1, "no such file"},
	} {
		t.Run(c.line, func(t *testing.T) {
			r := waymark(t, strings.Fields(c.line)...)
			text := ""
			for alternative := range strings.SplitSeq(c.text, "|") {
				if strings.Contains(r.stderr, alternative) {
					text = alternative
				}
			}
			if text == "" {
				t.Errorf("stderr lacks %q: %s", c.text, r.stderr)
			}
			wants(t, r, c.code)
			if !strings.HasPrefix(r.stderr, "waymark: ") {
				t.Errorf("who says this? %s", r.stderr)
			}
		})
	}
}

// TestBadVariables: a variable is as wrong as a key; one that sets nothing is
// reported, if it looks like one that does.
func TestBadVariables(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]struct {
		code int
		text string
	}{
		"WAYMARK_FLOW_SCAN_INTERVAL=fast":  {2, "WAYMARK_FLOW_SCAN_INTERVAL: flow.scan_interval: \"fast\""},
		"WAYMARK_FLOW_SAMPLING=0":          {2, "1 to"},
		"WAYMARK_EXPORT=[{jsonl: 3}]":      {2, "WAYMARK_EXPORT: export[0].jsonl"},
		"WAYMARK_INTERFACES=[a, b":         {2, "[a, b]"},
		"WAYMARK_API_LISTEN=192.0.2.1:80":  {2, "127.0.0.1"},
		"WAYMARK_FLOW_SCAN_INTERVL=1s":     {0, "did you mean WAYMARK_FLOW_SCAN_INTERVAL?"},
		"WAYMARK_SERVICE_PORT=tcp://a:123": {0, ""},
	} {
		t.Run(variable, func(t *testing.T) {
			cmd := command(program, "config", "dump")
			cmd.Env = append(cmd.Env, variable)
			r := finish(t, nil, cmd)
			wants(t, r, want.code, want.text)
			if want.text == "" && r.stderr != "" {
				t.Errorf("it said %s", r.stderr)
			}
		})
	}
}

// TestTakenPlaces: ports in use and sockets that cannot be made end the start,
// with the remedy, before anything is attached.
func TestTakenPlaces(t *testing.T) {
	t.Parallel()
	h := labtest.NewHost(t)
	must(t, h, "ip", "link", "set", "lo", "up")
	var taken net.Listener
	if err := h.Do(func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:9474")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config string
		texts  []string
	}{
		"port of the metrics": {"export: [{prometheus: {}}]", []string{"127.0.0.1:9474", "address already in use", "export.prometheus.listen"}},
		"port of the API":     {"api: {socket: DIR/a.sock, listen: \"127.0.0.1:9474\"}", []string{"127.0.0.1:9474", "address already in use", "api.listen"}},
		"no directory":        {"api: {socket: " + file + "/agent.sock}", []string{file, "--socket"}},
		"a file":              {"api: {socket: " + file + "}", []string{file, "no socket", "--socket"}},
		"read-only":           {"api: {socket: /proc/agent.sock}", []string{"/proc", "--socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := launch(t, setup{host: h, config: quick + "interfaces: [lo]\n" + c.config})
			code := a.wait(t)
			wants(t, result{stderr: a.stderr.String(), code: code}, 1, c.texts...)
			if strings.Contains(a.stderr.String(), "counting") {
				t.Errorf("it had attached already: %s", a.stderr)
			}
			if exists(a.path("a.sock")) {
				t.Error("the socket is left")
			}
		})
	}
	if !exists(file) {
		t.Error("the file in the socket's place is gone")
	}
}

// TestAPIIsLocal: the socket is for root and its group, also when it was made
// under a generous umask; the port answers on loopback alone.
func TestAPIIsLocal(t *testing.T) {
	t.Parallel()
	l, alpha, beta := newLab(t)
	_ = l
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\napi: {socket: DIR/agent.sock, listen: \"127.0.0.1:8099\"}\n"})
	info, err := os.Stat(a.socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o660 {
		t.Errorf("the socket's mode is %o", mode)
	}
	if body := get(t, alpha, "http://127.0.0.1:8099/readyz"); !strings.Contains(body, "ok") {
		t.Errorf("readyz: %s", body)
	}
	if err := beta.Do(func() error {
		conn, err := net.DialTimeout("tcp", fmt.Sprintf("%s:8099", alpha.Addr4()), 2*time.Second)
		if err == nil {
			conn.Close()
			return fmt.Errorf("another host reaches the API")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// A page in a browser must not read flows through a name that points here.
	if err := alpha.Do(func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:8099")
		if err != nil {
			return err
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /api/v1/flows HTTP/1.1\r\nHost: evil.example:8099\r\nConnection: close\r\n\r\n")
		b := make([]byte, 64)
		n, err := conn.Read(b)
		if err != nil {
			return err
		}
		if status := string(b[:n]); strings.Contains(status, " 200 ") {
			return fmt.Errorf("a foreign host name is answered: %s", status)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	a.signal(unix.SIGTERM)
	a.wait(t)
}

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// TestConfigDump: what is dumped is accepted and means the same.
func TestConfigDump(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.yaml"), filepath.Join(dir, "second.yaml")
	r := waymark(t, "config", "dump", "-i", "eth*", "--set", "flow.scan_interval=1500ms", "--set", "flow.tunnels=vxlan,gre",
		"--set", `export=[{jsonl: {path: "a: #b.jsonl"}}, {ipfix: {collector: "udp://[::1]:4739", biflow: true}}, {prometheus: {}}]`)
	wants(t, r, 0)
	if err := os.WriteFile(first, []byte(r.stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	wants(t, waymark(t, "config", "check", first), 0)
	again := waymark(t, "config", "dump", "--config", first)
	wants(t, again, 0)
	if err := os.WriteFile(second, []byte(again.stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	third := waymark(t, "config", "dump", "--config", second)
	comment := regexp.MustCompile(`(?m) *#.*$`)
	values := func(s string) string {
		// The hash in quotes is not one; what follows it is not looked at.
		return comment.ReplaceAllString(s, "")
	}
	if values(r.stdout) != values(again.stdout) || values(again.stdout) != values(third.stdout) {
		t.Errorf("first:\n%s\nsecond:\n%s\nthird:\n%s", r.stdout, again.stdout, third.stdout)
	}
	for _, want := range []string{"scan_interval: 1.5s", "biflow: true", `a: #b.jsonl`} {
		if !strings.Contains(third.stdout, want) {
			t.Errorf("%q is lost:\n%s", want, third.stdout)
		}
	}
}

// TestCompletion: every shell takes its script.
func TestCompletion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for shell, check := range map[string][]string{
		"bash": {"bash", "-euc", `source "$0" 2>&1 && complete -p waymark`},
		"zsh":  {"zsh", "-n"},
		"fish": {"fish", "--no-execute"},
	} {
		script := waymark(t, "completion", shell)
		wants(t, script, 0)
		if !strings.Contains(script.stdout, "waymark") {
			t.Errorf("%s: %s", shell, script.stdout)
		}
		if execute(t, nil, "sh", "-c", "command -v "+check[0]).code != 0 {
			t.Logf("%s is not here to judge its script", shell)
			continue
		}
		file := filepath.Join(dir, shell)
		if err := os.WriteFile(file, []byte(script.stdout), 0o644); err != nil {
			t.Fatal(err)
		}
		if r := execute(t, nil, append(check, file)...); r.code != 0 {
			t.Errorf("%s: exit code %d: %s%s", shell, r.code, r.stdout, r.stderr)
		}
	}
	// What the scripts ask: names of verbs, topologies, values of flags.
	for line, want := range map[string]string{
		"run --set flow.":  "flow.sampling=",
		"run -i ":          "lo",
		"":                 "doctor",
		"lab up ":          "chain",
		"flows --output ":  "jsonl",
		"top --view ":      "conversations",
		"completion ":      "fish",
		"config ":          "check",
		"run --log-level ": "debug",
		"run --probe ":     "afpacket",
	} {
		args := strings.Split("__complete "+line, " ")
		if r := waymark(t, args...); !strings.Contains(r.stdout, want) {
			t.Errorf("completing %q gives %q, which lacks %q", line, r.stdout, want)
		}
	}
}

// TestVersionAndDoctor: in words and in JSON.
func TestVersionAndDoctor(t *testing.T) {
	t.Parallel()
	kernel := strings.TrimSpace(must(t, nil, "uname", "-r"))
	r := waymark(t, "version")
	wants(t, r, 0)
	if !strings.HasPrefix(r.stdout, "waymark ") || !strings.Contains(r.stdout, kernel) {
		t.Error(r.stdout)
	}
	var version struct{ Version, Commit, Kernel string }
	if err := json.Unmarshal([]byte(waymark(t, "version", "-o", "json").stdout), &version); err != nil || version.Kernel != kernel {
		t.Errorf("%+v, %v", version, err)
	}
	r = waymark(t, "doctor", "lo")
	wants(t, r, 0)
	for _, want := range []string{"CHECK", "tcx", "INTERFACE", "loopback"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("doctor lacks %q:\n%s", want, r.stdout)
		}
	}
	var report struct {
		Kernel string
		Checks []struct{ Name, State string }
	}
	if err := json.Unmarshal([]byte(waymark(t, "doctor", "-o", "json").stdout), &report); err != nil || report.Kernel != kernel || len(report.Checks) < 10 {
		t.Errorf("%+v, %v", report, err)
	}
	for _, verb := range []string{"", "run", "flows", "status", "top", "doctor", "lab", "lab up", "lab demo", "config", "decode", "completion bash"} {
		r := waymark(t, append(strings.Fields(verb), "--help")...)
		wants(t, r, 0)
		if !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%s --help: %s", verb, r.stdout)
		}
	}
}

// TestStatus: what there is to say fits a terminal.
func TestStatus(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [to-*, absent0]\nexport: [{jsonl: {path: /dev/null}}, {prometheus: {listen: \"127.0.0.1:0\"}}]\n"})
	transfer(t, alpha, beta)
	a.covered(t)
	prints(t, a, "/api/v1/status", a.ask(t, "status", "-o", "json"), func(s obs.Status) any {
		return []any{s.Version, s.PID, s.Started, s.Probe, s.Hooks, s.Programs}
	})
	r := a.ask(t, "status")
	wants(t, r, 0)
	for _, want := range []string{
		"agent", "pid", "probe ", "ebpf", "every 50ms", "to-beta", "attached", "absent0", "waiting",
		"COVERAGE", "100 %", "TOTAL", "tcp", "EXPORTER", "/dev/null", "LOSS  none",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("status lacks %q:\n%s", want, r.stdout)
		}
	}
	for line := range strings.Lines(r.stdout) {
		if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
			t.Errorf("blanks at the end of %q", line)
		}
		if n := utf8.RuneCountInString(line); n > 120 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

// TestSchema: every record is as the schema says, in the eyes of another program.
func TestSchema(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
	stop := makeTraffic(t, alpha, beta)
	a.covered(t)
	a.stop(t)
	stop()
	schema := a.path("schema.json")
	if err := os.WriteFile(schema, jsonl.Schema(), 0o644); err != nil {
		t.Fatal(err)
	}
	const judge = `
import json, sys, jsonschema
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
v = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
lines = [json.loads(l) for l in open(sys.argv[2])]
for l in lines:
    for e in v.iter_errors(l):
        print(e.message, file=sys.stderr)
        sys.exit(1)
for key, value in {"packets": "many", "direction": "up", "sport": 65536, "first": "noon", "src": "nowhere"}.items():
    if v.is_valid(dict(lines[0], **{key: value})):
        sys.exit("the schema takes %s for %s" % (value, key))
for key in ["packets", "iface", "proto"]:
    if v.is_valid({k: w for k, w in lines[0].items() if k != key}):
        sys.exit("the schema does without " + key)
print(len(lines))
`
	r := execute(t, nil, "python3", "-c", judge, schema, a.path("flows.jsonl"))
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	if n := number(t, strings.TrimSpace(r.stdout)); n < 10 {
		t.Errorf("%d records tell nothing", n)
	}
}

// TestTop: the terminal at its smallest, from start to q.
func TestTop(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\n"})
	stop := makeTraffic(t, alpha, beta)
	defer stop()
	server := labtest.Prefix()
	tmux := func(args ...string) result {
		cmd := command(append([]string{"tmux", "-L", server, "-f", "/dev/null"}, args...)...)
		return finish(t, nil, cmd)
	}
	t.Cleanup(func() { tmux("kill-server") })
	wants(t, tmux("new-session", "-d", "-x", "80", "-y", "24", program+" top --socket "+a.socket+"; echo exit code $?; sleep 60"), 0)
	screen := func() string { return tmux("capture-pane", "-p").stdout }
	shows := func(texts ...string) {
		t.Helper()
		await.Success(t, func() error {
			now := screen()
			for _, text := range texts {
				if !strings.Contains(now, text) {
					return notYet("the screen lacks %q:\n%s", text, now)
				}
			}
			for line := range strings.Lines(now) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
					t.Fatalf("%d columns: %s", n, line)
				}
			}
			return nil
		})
	}
	shows("waymark top", "icmp", alpha.Addr4().String(), beta.Addr4().String(), "q quit")
	tmux("send-keys", "2")
	shows("flows", "echo")
	tmux("send-keys", "/")
	tmux("send-keys", "-l", "udp")
	tmux("send-keys", "Enter")
	await.Success(t, func() error {
		if now := screen(); strings.Contains(now, "echo") {
			return notYet("the filter does nothing:\n%s", now)
		}
		return nil
	})
	tmux("send-keys", "?")
	shows("KEYS", "quit")
	tmux("send-keys", "?")
	tmux("send-keys", "q")
	shows("exit code 0")
	if now := screen(); strings.Contains(now, "waymark top") {
		t.Errorf("the terminal is not as it was:\n%s", now)
	}
}

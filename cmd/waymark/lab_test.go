package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/built"
)

// program is the built waymark: lab exec becomes another program, and lab up path
// starts itself again.
type program struct {
	t    *testing.T
	file string
}

// run runs waymark and returns its exit code and what it wrote.
func (p program) run(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(p.t.Context(), p.file, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// must runs waymark and returns its standard output.
func (p program) must(args ...string) string {
	p.t.Helper()
	code, stdout, stderr := p.run(args...)
	if code != command.ExitOK {
		p.t.Fatalf("waymark %s: exit code %d: %s", strings.Join(args, " "), code, stderr)
	}
	return stdout
}

func TestLabVerbs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	waymark := program{t, built.Waymark(t)}
	prefix := fmt.Sprintf("--prefix=lv%d-", os.Getpid())
	t.Cleanup(func() {
		if err := lab.Down(strings.TrimPrefix(prefix, "--prefix=")); err != nil {
			t.Error(err)
		}
	})

	table := waymark.must("lab", "up", "chain", prefix, "--slow=porthos=100us,athos=10us")
	if n := strings.Count(table, "\n"); n != 9 || !strings.Contains(table, "2001:db8:4::2/64") {
		t.Errorf("lab up chain printed:\n%s", table)
	}
	for _, c := range []struct {
		args string
		code int
		say  string // on stderr
	}{
		{"lab up pair", command.ExitFailure, "waymark lab down " + strings.Replace(prefix, "=", " ", 1)},
		{"lab down pair", command.ExitFailure, "has topology chain"},
		{"lab up ring", command.ExitUsage, "chain, pair, path"},
		{"lab up pair --mtu 1279", command.ExitUsage, "1280"},
		{"lab up pair --delay 1ms", command.ExitUsage, "--delay needs topology path"},
		{"lab up path --match sctp", command.ExitUsage, "udp/PORT"},
		{"lab up path --reorder-every 1", command.ExitUsage, "2 or more"},
		{"lab up path --delay -1s", command.ExitUsage, "delay"},
		{"lab up chain --slow gamma=1ms", command.ExitUsage, "topology chain has alpha, athos"},
		{"lab up chain --slow porthos=1h", command.ExitUsage, "choose up to 10ms"},
		{"lab up chain --slow porthos=fast", command.ExitUsage, "--slow porthos=fast"},
		{"lab exec gamma true", command.ExitUsage, "porthos"},
		{"lab exec alpha no-such-command", command.ExitFailure, "no-such-command"},
		{"lab exec alpha -- sh -c exit_7", 7, ""},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		args = append(args[:2:2], append([]string{prefix}, args[2:]...)...)
		code, stdout, stderr := waymark.run(args...)
		if code != c.code || !strings.Contains(stderr, c.say) || stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d and %q", c.args, code, stdout, stderr, c.code, c.say)
		}
	}
	if links := waymark.must("lab", "exec", prefix, "athos", "--", "ip", "-br", "link"); !strings.Contains(links, "to-porthos") {
		t.Errorf("links of athos:\n%s", links)
	}
	if filters := waymark.must("lab", "exec", prefix, "porthos", "--", "tc", "filter", "show", "dev", "to-athos", "ingress"); !strings.Contains(filters, "lab_slow") {
		t.Errorf("porthos is not slow: filters %s", filters)
	}
	name := strings.TrimPrefix(prefix, "--prefix=")
	for line, want := range map[string]string{
		"lab exec " + prefix + " ":   "\nporthos\t10.0.2.2, 10.0.3.1\n",
		"lab down --prefix ":         "\n" + name + "\tchain\n",
		"run --netns ":               "\n" + name + "porthos\n",
		"flows netns ":               "\n" + name + "porthos\n",
		"lab exec --prefix wm.none-": ":", // no hosts, no error
	} {
		if got := "\n" + waymark.must(append([]string{"__complete"}, strings.Split(line, " ")...)...); !strings.Contains(got, want) {
			t.Errorf("completing %q offers %q, which lacks %q", line, got, want)
		}
	}
	waymark.must("lab", "down", prefix)
	waymark.must("lab", "down", prefix)
	if code, _, stderr := waymark.run("lab", "exec", prefix, "alpha", "true"); code != command.ExitFailure || !strings.Contains(stderr, "lab up") {
		t.Errorf("exec on a lab that is down: %d, %s", code, stderr)
	}
}

func TestLabPath(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	waymark := program{t, built.Waymark(t)}
	name := fmt.Sprintf("lp%d-", os.Getpid())
	prefix := "--prefix=" + name
	t.Cleanup(func() {
		if err := lab.Down(name); err != nil {
			t.Error(err)
		}
	})
	waymark.must("lab", "up", "path", prefix, "--delay=20ms", "--delay-back=5ms", "--match=udp/9", "--loss-every=2")

	// Six datagrams, of which the second, fourth and sixth are lost.
	waymark.must("lab", "exec", prefix, "alpha", "--", "bash", "-c", "for i in 1 2 3 4 5 6; do echo $i >/dev/udp/10.0.1.2/9; done")
	var info labWithStats
	await.Success(t, func() error {
		if info = findLab(t, waymark, name); info.Wire == nil || info.Wire.AB.Matched < 6 {
			return fmt.Errorf("the relay reports %+v", info.Wire)
		}
		return nil
	})
	if ab := info.Wire.AB; ab.Matched != 6 || ab.Dropped != 3 || ab.Lost() != 0 {
		t.Errorf("the relay reports %+v, want 3 of 6 dropped", ab)
	}
	if table := waymark.must("lab", "list"); !strings.Contains(table, name+" alpha to beta") {
		t.Errorf("lab list says nothing of the relay:\n%s", table)
	}

	// A relay that was killed leaves a socket that nobody answers on.
	relay, err := os.FindProcess(info.Relay.PID)
	if err != nil {
		t.Fatal(err)
	}
	if !info.Relay.Alive() {
		t.Errorf("the relay recorded as %+v does not run", info.Relay)
	}
	if err := relay.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the end of the relay after SIGKILL", func() bool { return !info.Relay.Alive() })
	if info := findLab(t, waymark, name); info.Wire != nil {
		t.Errorf("a dead relay reports %+v", info.Wire)
	}
	waymark.must("lab", "down", prefix)

	// One that lives is stopped.
	waymark.must("lab", "up", "path", prefix)
	info = findLab(t, waymark, name)
	waymark.must("lab", "down", prefix)
	if info.Relay == nil || info.Relay.Alive() {
		t.Errorf("the relay %+v runs on", info.Relay)
	}
	if left, err := filepath.Glob("/run/waymark/lab/" + name + "*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func findLab(t *testing.T, waymark program, prefix string) labWithStats {
	t.Helper()
	var labs []labWithStats
	if err := json.Unmarshal([]byte(waymark.must("lab", "list", "-o", "json")), &labs); err != nil {
		t.Fatal(err)
	}
	for _, l := range labs {
		if l.Prefix == prefix {
			return l
		}
	}
	t.Fatalf("lab %s is not in the list", prefix)
	return labWithStats{}
}

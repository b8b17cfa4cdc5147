package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// leftOf is what is left of a lab: its namespaces and files.
func leftOf(t *testing.T, prefix string) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{"/run/netns/" + prefix + "*", "/run/waymark/lab/" + prefix + "*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	return left
}

// downAtEnd takes a lab away that a failed test left.
func downAtEnd(t *testing.T, prefix string) {
	t.Cleanup(func() {
		if r := waymark(t, "lab", "down", "--prefix", prefix); r.code != 0 {
			t.Errorf("lab down: %s", r.stderr)
		}
	})
}

// TestLab: up, list, exec and down, as typed.
func TestLab(t *testing.T) {
	t.Parallel()
	prefix := labtest.Prefix()
	downAtEnd(t, prefix)
	links := must(t, nil, "ip", "-br", "link")
	up := waymark(t, "lab", "up", "chain", "--prefix", prefix)
	wants(t, up, 0)
	for _, host := range []string{"alpha", "athos", "porthos", "aramis", "beta"} {
		if !strings.Contains(up.stdout, prefix+host) {
			t.Errorf("no %s:\n%s", host, up.stdout)
		}
	}
	var labs []struct {
		Prefix, Topology, State string
		Hosts                   []struct {
			Name       string
			Interfaces []struct{ Addr4, Addr6 string }
		}
	}
	if err := json.Unmarshal([]byte(waymark(t, "lab", "list", "-o", "json").stdout), &labs); err != nil {
		t.Fatal(err)
	}
	addr := ""
	for _, l := range labs {
		if l.Prefix == prefix {
			if l.State != "up" || l.Topology != "chain" || len(l.Hosts) != 5 {
				t.Errorf("%+v", l)
			}
			addr, _, _ = strings.Cut(l.Hosts[4].Interfaces[0].Addr6, "/")
		}
	}
	r := waymark(t, "lab", "exec", "--prefix", prefix, "alpha", "--", "ip", "route", "get", addr)
	wants(t, r, 0)
	if !strings.Contains(r.stdout, addr) {
		t.Errorf("alpha has no way to %s: %s", addr, r.stdout)
	}
	if r := waymark(t, "lab", "exec", "--prefix", prefix, "alpha", "--", "sh", "-c", "exit 42"); r.code != 42 {
		t.Errorf("exit code %d, want the command's own", r.code)
	}
	wants(t, waymark(t, "lab", "exec", "--prefix", prefix, "gamma", "--", "true"), 2, "alpha, athos")
	wants(t, waymark(t, "lab", "exec", "--prefix", prefix, "alpha", "--", "no-such-command"), 1, "no-such-command")
	wants(t, waymark(t, "lab", "up", "pair", "--prefix", prefix), 1, "lab down")
	wants(t, waymark(t, "lab", "down", "pair", "--prefix", prefix), 1, "chain")
	wants(t, waymark(t, "lab", "down", "--prefix", prefix), 0)
	wants(t, waymark(t, "lab", "down", "--prefix", prefix), 0)
	if left := leftOf(t, prefix); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if now := must(t, nil, "ip", "-br", "link"); now != links {
		t.Errorf("links of this host before:\n%safter:\n%s", links, now)
	}
}

// startDemo runs `waymark lab demo` in a process group and with temporary files
// of its own.
func startDemo(t *testing.T, stdout *os.File, more ...string) (p *process, prefix, tmp string) {
	t.Helper()
	prefix, tmp = labtest.Prefix(), t.TempDir()
	downAtEnd(t, prefix)
	cmd := exec.Command(program, append([]string{"lab", "demo", "--prefix", prefix}, more...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if stdout != nil {
		cmd.Stdout = stdout
	}
	return spawn(t, nil, cmd), prefix, tmp
}

func nothingLeft(t *testing.T, prefix, tmp string) {
	t.Helper()
	left := leftOf(t, prefix)
	files, err := filepath.Glob(tmp + "/*")
	if err != nil || len(left)+len(files) > 0 {
		t.Errorf("the demonstration left %v %v (%v)", left, files, err)
	}
}

// TestDemo: it shows flows, how exact they are, delays and paths; leaves the console of an agent running; and is gone once
// its lab is taken down.
func TestDemo(t *testing.T) {
	t.Parallel()
	p, prefix, tmp := startDemo(t, nil, "--keep")
	if code := p.wait(t); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	out := p.stdout.String()
	for _, want := range []string{
		"PROTO", "udp", "icmp", "RTT", "coverage", "difference",
		" dropped by the rule, ", " of them are in flow records",
		// The second act: the verdict, and the ground truth.
		"server 10", "tcp, time at the server", "udp, round trip on the network",
		// The third: the hops, and which of them is slow.
		"2 > 3 > 4 > 5", "LINK TO NEXT", "The slow hop is porthos", "path_delay, medium: Node 3 keeps packets for 2",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the demonstration lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("escape sequences where no terminal is")
	}
	covered := regexp.MustCompile(`(?m) (\d+\.\d+) %$`).FindAllStringSubmatch(out, -1)
	if len(covered) != 8 {
		t.Errorf("%d lines of coverage, want 8:\n%s", len(covered), out)
	}
	for _, c := range covered {
		if c[1] != "100.00" {
			t.Errorf("coverage %s %%:\n%s", c[1], out)
		}
	}
	for _, what := range []string{"iperf3", "TCP download", "UDP stream"} {
		if !regexp.MustCompile(`(?m)` + what + `.* 0$`).MatchString(out) {
			t.Errorf("%s is not counted exactly:\n%s", what, out)
		}
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	explore(t, lines[len(lines)-1])
	wants(t, waymark(t, "lab", "down", "--prefix", prefix), 0)
	await.Success(t, func() error {
		if files, err := filepath.Glob(tmp + "/*"); err != nil || len(files) > 0 {
			return notYet("left: %v %v", files, err)
		}
		return nil
	})
	nothingLeft(t, prefix, tmp)
}

// explore opens the console at a link: its hour of history is there, with what goes wrong in it, and the lab's traffic.
func explore(t *testing.T, link string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	address, err := url.Parse(link)
	if err != nil || address.Scheme != "http" {
		t.Fatalf("the last line is no link: %s", link)
	}
	get := func(path string) string {
		resp, err := browser.Get(address.ResolveReference(&url.URL{Path: path}).String())
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Errorf("%s: %d %s %v", path, resp.StatusCode, body, err)
		}
		return string(body)
	}
	if resp, err := browser.Get(link); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %v %v", link, resp, err)
	}
	if page := get("/"); !strings.Contains(page, "/app.js") {
		t.Errorf("the console is %s", page)
	}
	if why := get("/api/v1/why"); !strings.Contains(why, "[2001:db8:2::5432]:5432") || !strings.Contains(why, "[2001:db8:2::8080]:8080 does not answer") {
		t.Errorf("why: %s", why)
	}
	await.Success(t, func() error {
		if flows := get("/api/v1/flows"); !strings.Contains(flows, `"iface":"to-aramis"`) {
			return notYet("no traffic of the lab")
		}
		return nil
	})
}

// TestDemoInterrupted: Ctrl-C in the middle, a reader that leaves, and a
// terminal that is closed leave nothing behind.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		until  string
		signal unix.Signal
	}{
		"early":    {"Five hosts", unix.SIGINT},
		"traffic":  {"Traffic from", unix.SIGTERM},
		"terminal": {"Agents run on alpha", unix.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, prefix, tmp := startDemo(t, nil)
			await.Success(t, func() error {
				if !strings.Contains(p.stdout.String(), c.until) {
					return notYet("it says %s", p.stdout)
				}
				return nil
			})
			// A terminal signals all that runs in its foreground.
			if err := unix.Kill(-p.Process.Pid, c.signal); err != nil {
				t.Fatal(err)
			}
			code := p.wait(t)
			wants(t, result{stderr: p.stderr.String(), code: code}, 1, "interrupted")
			nothingLeft(t, prefix, tmp)
		})
	}
	t.Run("closed pipe", func(t *testing.T) {
		t.Parallel()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p, prefix, tmp := startDemo(t, w)
		w.Close()
		r.Close()
		if code := p.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
		nothingLeft(t, prefix, tmp)
	})
}

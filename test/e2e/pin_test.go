package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// Ports of a stream: packets to the first are forbidden.
const forbidden, allowed = 9999, 9998

// steady sends forbidden packets, and after each few of them one that is allowed, and goes on when that has arrived.
type steady struct {
	sent, passed, rounds atomic.Uint64
	stop                 func()
}

func newSteady(t *testing.T, from, to *lab.Host) *steady {
	t.Helper()
	s := &steady{}
	var sockets []*net.UDPConn
	open := func(h *lab.Host, f func() (*net.UDPConn, error)) *net.UDPConn {
		var c *net.UDPConn
		if err := h.Do(func() (err error) {
			c, err = f()
			return err
		}); err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, c)
		return c
	}
	ip := to.Addr4().AsSlice()
	in, out := map[int]*net.UDPConn{}, map[int]*net.UDPConn{}
	for _, port := range []int{forbidden, allowed} {
		at := &net.UDPAddr{IP: ip, Port: port}
		in[port] = open(to, func() (*net.UDPConn, error) { return net.ListenUDP("udp4", at) })
		out[port] = open(from, func() (*net.UDPConn, error) { return net.DialUDP("udp4", nil, at) })
	}
	var over atomic.Bool
	var running sync.WaitGroup
	arrived := make(chan struct{})
	read := func(port int, each func()) {
		running.Go(func() {
			b := make([]byte, 64)
			for {
				if _, err := in[port].Read(b); err != nil {
					return
				}
				each()
			}
		})
	}
	read(forbidden, func() { s.passed.Add(1) })
	read(allowed, func() { arrived <- struct{}{} })
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		pace := time.NewTicker(time.Millisecond)
		defer pace.Stop()
		for !over.Load() {
			<-pace.C
			for range 8 {
				if _, err := out[forbidden].Write([]byte("no")); err != nil {
					t.Errorf("sending: %v", err)
					return
				}
				s.sent.Add(1)
			}
			if _, err := out[allowed].Write([]byte("yes")); err != nil {
				t.Errorf("sending: %v", err)
				return
			}
			select {
			case <-arrived:
				s.rounds.Add(1)
			case <-time.After(await.Patience):
				t.Error("a packet that is allowed was lost")
				return
			}
		}
	}()
	s.stop = sync.OnceFunc(func() {
		over.Store(true)
		<-sent
		for _, c := range sockets {
			_ = c.Close()
		}
		running.Wait()
	})
	t.Cleanup(s.stop)
	return s
}

// goesOn waits until more has been sent, and checks that nothing forbidden has passed.
func (s *steady) goesOn(t *testing.T, when string) {
	t.Helper()
	first := s.rounds.Load()
	await.True(t, "packets "+when, func() bool { return s.rounds.Load() > first+20 || t.Failed() })
	if n := s.passed.Load(); n != 0 {
		t.Fatalf("%s: %d forbidden packets passed", when, n)
	}
}

// kept is a configuration whose rules stay in effect.
func kept(t *testing.T, mode string) string {
	t.Helper()
	state, pins := filepath.Join(t.TempDir(), "gate.json"), "/sys/fs/bpf/"+filepath.Base(t.TempDir())+strings.ReplaceAll(t.Name(), "/", "-")
	return quick + fmt.Sprintf("interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: %s, state: %s, pin: true, pin_dir: %s}\n", mode, state, pins)
}

// pinsOf is gate.pin_dir of a configuration.
func pinsOf(config string) string {
	_, after, _ := strings.Cut(config, "pin_dir: ")
	return strings.TrimRight(after, "}\n")
}

// gateStateOf is the file of gate.state.
func gateStateOf(config string) string {
	_, after, _ := strings.Cut(config, "state: ")
	file, _, _ := strings.Cut(after, ",")
	return file
}

// TestPinnedRules: under load, no forbidden packet passes while agents are killed, stopped, replaced by others with another
// configuration; and the counters of all of them go on, to the packet.
func TestPinnedRules(t *testing.T) {
	t.Parallel()
	for mode, end := range map[string]func(*testing.T, *lab.Host, string){"native": stale, "tc": unpinned} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			_, alpha, beta := newLab(t)
			config := kept(t, mode)
			a := start(t, setup{host: alpha, config: config})
			rule := fmt.Sprintf("drop udp dst port %d", forbidden)
			wants(t, a.rules(t, "add", rule), 0)
			wants(t, a.rules(t, "add", "count icmp"), 0)
			wants(t, a.rules(t, "ban", "192.0.2.7", "for", "1h"), 0)
			s := newSteady(t, beta, alpha)
			s.goesOn(t, "with an agent")
			wants(t, waymark(t, "restore", "--pins", "--pin-dir", pinsOf(config)), 1, "another agent", "stop the agent")
			a.kill()
			s.goesOn(t, "after a kill")
			a = start(t, setup{host: alpha, config: strings.Replace(config, "mode:", "table_memory: 4MiB, max_rules: 1000, bans: {max: 10}, mode:", 1)})
			s.goesOn(t, "with the next agent")
			s.stop()
			if n := s.passed.Load(); n != 0 {
				t.Errorf("%d forbidden packets passed", n)
			}
			if bans := a.bans(t).Bans; len(bans) != 1 || bans[0].Until == nil {
				t.Errorf("%+v", bans)
			}
			sent := s.sent.Load()
			await.True(t, "all counts", func() bool { return a.rule(t, rule).Dropped >= sent })
			if got := a.rule(t, rule); got.Dropped != sent || got.Packets != sent {
				t.Errorf("counted %+v, sent %d", got, sent)
			}
			wants(t, a.rules(t, "add", "drop icmp"), 0)
			a.stop(t)
			arrives(t, beta, alpha, false)
			end(t, alpha, config)
		})
	}
}

// says waits until an agent has logged a text.
func (a *agent) says(t *testing.T, text string) {
	t.Helper()
	await.True(t, text, func() bool { return strings.Contains(a.stderr.String(), text) })
}

// unpinned removes what an agent has left.
func unpinned(t *testing.T, alpha *lab.Host, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "waymark.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r := execute(t, alpha, program, "restore", "--pins", "--config", file)
	wants(t, r, 0)
	if !strings.Contains(r.stdout, "of interface to-") {
		t.Errorf("%+v", r)
	}
	if exists(pinsOf(config)) {
		t.Error("pins are left")
	}
	await.True(t, "no program", func() bool { return attached(t, alpha) == "" }) // the kernel takes its time
	if r := waymark(t, "restore", "--pins", "--pin-dir", pinsOf(config)); r.stdout != "nothing to remove in directory "+pinsOf(config)+"\n" {
		t.Errorf("%+v", r)
	}
}

// stale: the next agent removes pins of an interface that is gone, and its counters go on.
func stale(t *testing.T, alpha *lab.Host, config string) {
	t.Helper()
	links, err := filepath.Glob(pinsOf(config) + "/link-*")
	if err != nil || len(links) != 1 {
		t.Fatalf("%v, %v", links, err)
	}
	must(t, alpha, "ip", "link", "del", alpha.Interfaces[0].Name)
	a := start(t, setup{host: alpha, config: config})
	a.says(t, "removed what an agent before has left")
	if exists(links[0]) {
		t.Error("the pin is left")
	}
	if got := a.rule(t, "drop icmp").Dropped; got != 1 {
		t.Errorf("%d packets counted, want 1", got)
	}
	a.stop(t)
	wants(t, waymark(t, "restore", "--pins", "--pin-dir", pinsOf(config)), 0)
}

// TestPinsEnd: an agent that keeps nothing takes over what was kept, and its end is that of the rules.
func TestPinsEnd(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	config := kept(t, "native")
	a := start(t, setup{host: alpha, config: config})
	wants(t, a.rules(t, "add", "drop icmp"), 0)
	a.stop(t)
	arrives(t, beta, alpha, false)
	a = start(t, setup{host: alpha, config: strings.Replace(config, "pin: true", "pin: false", 1)})
	arrives(t, beta, alpha, false)
	await.True(t, "the counts of both", func() bool { return a.rule(t, "drop icmp").Dropped == 2 })
	await.True(t, "the end of all pins", func() bool { return !exists(pinsOf(config)) })
	a.stop(t)
	arrives(t, beta, alpha, true)
}

// TestPinsAreNotLost: an agent that cannot go on with the rules and bans that are in effect does not start, says why and what to
// do, and leaves everything as it is.
func TestPinsAreNotLost(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	config := kept(t, "native")
	state := gateStateOf(config)
	a := start(t, setup{host: alpha, config: config})
	wants(t, a.rules(t, "add", "drop icmp"), 0)
	wants(t, a.rules(t, "ban", "192.0.2.7"), 0)
	wants(t, a.rules(t, "ban", "192.0.2.8"), 0)
	a.stop(t)
	good := readText(t, state)
	pins := must(t, nil, "find", pinsOf(config))
	refused := func(config string, want ...string) {
		t.Helper()
		a, _ := launch(t, setup{host: alpha, config: config})
		if code := a.wait(t); code != 1 {
			t.Errorf("exit code %d", code)
		}
		for _, w := range append(want, "waymark: run: gate: ") {
			if !strings.Contains(a.stderr.String(), w) {
				t.Errorf("%q is not in %s", w, a.stderr)
			}
		}
		arrives(t, beta, alpha, false)
		if now := must(t, nil, "find", pinsOf(config)); now != pins {
			t.Errorf("pins before:\n%safter:\n%s", pins, now)
		}
	}
	remedy := "waymark restore --pins --pin-dir " + pinsOf(config)
	refused(strings.Replace(config, "state:", "bans: {max: 1}, state:", 1), "stay so", "the ban of 192.0.2.", "raise gate.bans.max", remedy)
	writeText(t, state, good[:len(good)/2])
	refused(config, "stay so", state+": it is damaged", remedy)
	if exists(state + ".bad") {
		t.Error("the file is put aside: the next agent would start without rules")
	}
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	refused(config, "stay so", state+": no such file", remedy)
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	refused(config, state+": is a directory", "must be able to read gate.state")
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	writeText(t, state, good)
	a = start(t, setup{host: alpha, config: config})
	arrives(t, beta, alpha, false)
	if n := len(a.bans(t).Bans); n != 2 {
		t.Errorf("%d bans", n)
	}

	// Where no file is named any more, the rules end, and the log says so.
	a.stop(t)
	_, after, _ := strings.Cut(config, "pin: true, ")
	a = start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: native, " + after})
	a.says(t, "rules and bans that an agent before has left in effect end")
	arrives(t, beta, alpha, true)
	a.stop(t)
}

// TestStalePins: maps that are left, without a program on an interface and without gate.state, keep no agent from starting. They
// are removed, which the log says.
func TestStalePins(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	config := kept(t, "native")
	state := gateStateOf(config)
	a := start(t, setup{host: alpha, config: config})
	wants(t, a.rules(t, "add", "drop icmp"), 0)
	a.stop(t)
	arrives(t, beta, alpha, false)
	must(t, nil, "sh", "-c", "rm "+pinsOf(config)+"/link-* "+state)
	a = start(t, setup{host: alpha, config: config})
	a.says(t, "removed counters that an agent before has left")
	arrives(t, beta, alpha, true)
	a.stop(t)
	unpinned(t, alpha, config)
}

// TestNoPins: without a bpf file system, or the right to write to it, an agent that should keep rules says so.
func TestNoPins(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	config := kept(t, "native")
	refused := func(s setup, want ...string) {
		t.Helper()
		a, _ := launch(t, s)
		if code := a.wait(t); code == 0 {
			t.Error("it runs")
		}
		for _, w := range want {
			if !strings.Contains(a.stderr.String(), w) {
				t.Errorf("%q is not in %s", w, a.stderr)
			}
		}
	}
	refused(setup{host: alpha, config: strings.Replace(config, "/sys/fs/bpf/", t.TempDir()+"/", 1)}, "is in no bpf file system", "mount -t bpf")
	refused(setup{host: alpha, config: strings.Replace(config, "/sys/fs/bpf/", "/sys/fs/bpf/missing/", 1)}, "/sys/fs/bpf/missing: no such file")
	refused(setup{host: alpha, config: strings.Replace(config, "state: ", "rules: ", 1)}, "gate.pin", "gate.state")
	if err := os.Mkdir(pinsOf(config), 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(pinsOf(config))
	a := start(t, setup{host: alpha, config: config})
	refused(setup{host: alpha, config: config}, "another agent keeps its programs there")
	a.stop(t)
	wants(t, waymark(t, "restore", "--pins", "--pin-dir", pinsOf(config)), 0)
}

// TestGateState: rules of the command line, bans and counters outlast an agent without pins; a rule file that has changed
// counts more; and a damaged file is named, put aside, and no reason not to start.
func TestGateState(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	dir := t.TempDir()
	file, rules := filepath.Join(dir, "gate.json"), filepath.Join(dir, "rules")
	config := quick + fmt.Sprintf("interfaces: [LINKS]\ngate: {interfaces: [to-*], mode: tc, state: %s, rules: %s}\n", file, rules)
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "list.txt"), "192.0.2.9\n")
	write(rules, "set s from \"list.txt\"\ndrop src @s\ncount icmp\n")
	a := start(t, setup{host: alpha, config: config})
	wants(t, a.rules(t, "add", "drop", "icmp", "for", "1h"), 0)
	wants(t, a.rules(t, "ban", "192.0.2.7", "for", "1h", "because"), 0)
	until := a.bans(t).Bans[0].Until
	arrives(t, beta, alpha, false)
	a.stop(t)
	arrives(t, beta, alpha, true)
	a = start(t, setup{host: alpha, config: config})
	arrives(t, beta, alpha, false)
	await.True(t, "packets counted over a restart", func() bool { return a.rule(t, "count icmp").Packets >= 2 })
	if n := a.rule(t, "count icmp").Packets; n != 2 {
		t.Errorf("%d packets counted over a restart, want 2", n)
	}
	if b := a.bans(t).Bans; len(b) != 1 || !b[0].Until.Equal(*until) || b[0].Reason != "because" {
		t.Errorf("%+v", b)
	}
	a.kill()

	// A list that the rule file names has changed.
	write(filepath.Join(dir, "list.txt"), "192.0.2.8\n")
	a = start(t, setup{host: alpha, config: config})
	arrives(t, beta, alpha, true)
	a.says(t, "the rule file has changed")
	if n := len(a.bans(t).Bans); n != 1 {
		t.Errorf("%d bans", n)
	}
	a.stop(t)
	damaged := readText(t, file)[7:]
	write(file, damaged)
	a = start(t, setup{host: alpha, config: config})
	a.says(t, file+".bad")
	arrives(t, beta, alpha, true)
	a.rule(t, "count icmp")
	if readText(t, file+".bad") != damaged {
		t.Error("the damaged file has changed")
	}

	monitors(t, a, alpha, beta)

	// The file cannot be written: a change says so, and is in effect.
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	wants(t, a.rules(t, "add", "drop", "udp"), 1, "is in effect, but is not kept over a restart")
	a.rule(t, "drop udp")
	a.stop(t)
}

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// addLink makes a veth whose near end is name, on one host. Frames that the far
// end sends arrive at it.
func addLink(t *testing.T, h *lab.Host, name string) {
	t.Helper()
	must(t, h, "ip", "link", "add", name, "address", "02:00:00:00:00:01", "type", "veth", "peer", "name", name+"p")
	must(t, h, "ip", "link", "set", name+"p", "up")
	must(t, h, "ip", "link", "set", name, "up")
}

// packetsOf waits until `waymark flows` shows a flow on an interface with so
// many packets.
func packetsOf(t *testing.T, a *agent, iface string, dport, want int) {
	t.Helper()
	await.Success(t, func() error {
		r := a.ask(t, "flows", "-o", "csv", "--by", "iface,dport", fmt.Sprintf("iface %s and dport %d and ingress", iface, dport))
		if r.code != 0 {
			t.Fatalf("flows: exit code %d: %s", r.code, r.stderr)
		}
		rows := readCSV(t, r.stdout)
		if len(rows) != 1 || rows[0]["packets"] != fmt.Sprint(want) {
			return notYet("%s has %v, want %d packets", iface, rows, want)
		}
		return nil
	})
}

// stateOf waits for a hook to have a state.
func stateOf(t *testing.T, a *agent, iface, state string) {
	t.Helper()
	await.Success(t, func() error {
		h, err := hook(a.status(t), iface)
		if err != nil {
			return err
		}
		if h.State != state {
			return notYet("%s is %s, want %s", iface, h.State, state)
		}
		return nil
	})
}

// TestInterfacesComeAndGo: an interface that is made later, deleted, made again,
// and renamed is counted, by both probes, with the privileges that are kept.
func TestInterfacesComeAndGo(t *testing.T) {
	t.Parallel()
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			t.Parallel()
			h := labtest.NewHost(t)
			a := start(t, setup{host: h, config: "probe: " + probe + "\n" + quick + "interfaces: [late0, glob*]\n"})
			stateOf(t, a, "late0", "waiting")
			if !strings.Contains(a.stderr.String(), "waiting for interfaces") {
				t.Errorf("the log says nothing of waiting: %s", a.stderr)
			}
			for i := range 3 {
				addLink(t, h, "late0")
				stateOf(t, a, "late0", "attached")
				sendUDP(t, h, "late0p", 1000+i, 10+i)
				packetsOf(t, a, "late0", 1000+i, 10+i)
				must(t, h, "ip", "link", "del", "late0")
				stateOf(t, a, "late0", "waiting")
			}
			for _, total := range a.status(t).Totals {
				if total.Iface == "late0" && total.Direction == "ingress" && total.Protocol == "udp" && total.Packets != 10+11+12 {
					t.Errorf("total of the three that were called late0: %+v", total)
				}
			}
			addLink(t, h, "glob7")
			stateOf(t, a, "glob7", "attached")
			// Into what is asked for, and out of it.
			addLink(t, h, "other0")
			must(t, h, "ip", "link", "set", "other0", "down")
			must(t, h, "ip", "link", "set", "other0", "name", "globx")
			must(t, h, "ip", "link", "set", "globx", "up")
			stateOf(t, a, "globx", "attached")
			sendUDP(t, h, "other0p", 2000, 20)
			packetsOf(t, a, "globx", 2000, 20)
			must(t, h, "ip", "link", "set", "glob7", "name", "glob8")
			stateOf(t, a, "glob8", "attached")
			sendUDP(t, h, "glob7p", 3000, 30)
			packetsOf(t, a, "glob8", 3000, 30)
			must(t, h, "ip", "link", "set", "glob8", "name", "away")
			await.Success(t, func() error {
				if _, err := hook(a.status(t), "away"); err == nil {
					return notYet("away is still counted")
				}
				return nil
			})
			a.covered(t)
			a.stop(t)
			if got := attached(t, h); got != "" {
				t.Errorf("left: %s", got)
			}
		})
	}
}

// TestFlapping: interfaces that are gone before they can be looked at are no
// errors, and leave nothing in the agent.
func TestFlapping(t *testing.T) {
	t.Parallel()
	for _, probe := range []string{"ebpf", "afpacket"} {
		t.Run(probe, func(t *testing.T) {
			t.Parallel()
			h := labtest.NewHost(t)
			a := start(t, setup{host: h, config: "probe: " + probe + "\n" + quick + "interfaces: [flap*, last0]\n"})
			descriptors := func() int {
				names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.Process.Pid))
				if err != nil {
					t.Fatal(err)
				}
				return len(names)
			}
			before := descriptors()
			var lines strings.Builder
			for i := range 50 {
				fmt.Fprintf(&lines, "link add flap%d up type veth peer name peer%d\nlink del flap%d\n", i, i, i)
			}
			cmd := command("ip", "-batch", "-")
			cmd.Stdin = strings.NewReader(lines.String())
			if r := finish(t, h, cmd); r.code != 0 {
				t.Fatal(r.stderr)
			}
			addLink(t, h, "last0") // seen after all others
			stateOf(t, a, "last0", "attached")
			must(t, h, "ip", "link", "del", "last0")
			stateOf(t, a, "last0", "waiting")
			await.Success(t, func() error {
				// Some of what the agent opens for a moment, such as for this question.
				if now := descriptors(); now > before+3 {
					return notYet("%d descriptors, %d before", now, before)
				}
				return nil
			})
			if strings.Contains(a.stderr.String(), "level=ERROR") {
				t.Errorf("errors: %s", a.stderr)
			}
			a.stop(t)
		})
	}
}

// TestOnMissingFail: what is named and is not there ends the start.
func TestOnMissingFail(t *testing.T) {
	t.Parallel()
	h := labtest.NewHost(t)
	a, _ := launch(t, setup{host: h, config: "on_missing: fail\n" + quick + "interfaces: [absent0, lo, absent*]\nnetns: [nowhere]\n"})
	if code := a.wait(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	for _, want := range []string{"absent0", "nowhere", "on_missing"} {
		if !strings.Contains(a.stderr.String(), want) {
			t.Errorf("the agent says %q, which lacks %q", a.stderr, want)
		}
	}
	if exists(a.socket) {
		t.Error("the socket is left")
	}
}

// TestNamespaceAppears: with `netns: all`, interfaces in a namespace that is made
// later are counted, and forgotten with it.
func TestNamespaceAppears(t *testing.T) {
	t.Parallel()
	h := labtest.NewHost(t)
	link := strings.ReplaceAll(labtest.Prefix()[3:], "-", "x")
	a := start(t, setup{host: h, config: quick + "interfaces: [" + link + "]\nnetns: [all]\n"})
	late := labtest.NewHost(t)
	addLink(t, late, link)
	find := func() (obs.Hook, error) {
		for _, h := range a.status(t).Hooks {
			if h.Iface == link && h.Netns == late.Netns {
				return h, nil
			}
		}
		return obs.Hook{}, notYet("no hook on %s in %s", link, late.Netns)
	}
	await.Success(t, func() error {
		h, err := find()
		if err == nil && h.State != "attached" {
			return notYet("%+v", h)
		}
		return err
	})
	sendUDP(t, late, link+"p", 4000, 40)
	packetsOf(t, a, link, 4000, 40)
	if err := lab.DeleteNetns(late.Netns); err != nil {
		t.Fatal(err)
	}
	await.Success(t, func() error {
		if h, err := find(); err == nil {
			return notYet("%+v", h)
		}
		return nil
	})
	a.stop(t)
}

// TestManyInterfaces: a hundred at once, half of them there at the start.
func TestManyInterfaces(t *testing.T) {
	t.Parallel()
	const half = 50
	h := labtest.NewHost(t)
	// No packets but those of the test: what is written last are their flows.
	must(t, h, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
	batch := func(from int) {
		t.Helper()
		var lines strings.Builder
		for i := range half {
			fmt.Fprintf(&lines, "link add many%d up type veth peer name peer%d\nlink set peer%d up\n", from+i, from+i, from+i)
		}
		cmd := command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(lines.String())
		if r := finish(t, h, cmd); r.code != 0 {
			t.Fatal(r.stderr)
		}
	}
	batch(0)
	a := start(t, setup{host: h, config: quick + "interfaces: [many*]\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
	batch(half)
	await.Success(t, func() error {
		n := len(slices.DeleteFunc(a.status(t).Hooks, func(h obs.Hook) bool { return h.State != "attached" }))
		if n != 2*2*half {
			return notYet("%d of %d hooks", n, 2*2*half)
		}
		return nil
	})
	for i := range 2 * half {
		sendUDP(t, h, fmt.Sprintf("peer%d", i), 5000+i, 1+i)
	}
	await.Success(t, func() error {
		r := a.ask(t, "flows", "-o", "csv", "--limit", "0", "--by", "iface,dport", "dport 5000-5099 and ingress")
		right := 0
		for _, row := range readCSV(t, r.stdout) {
			var i, port int
			if _, err := fmt.Sscanf(row["iface"]+" "+row["dport"], "many%d %d", &i, &port); err != nil {
				t.Fatal(err)
			}
			if port == 5000+i && row["packets"] == fmt.Sprint(1+i) {
				right++
			}
		}
		if right != 2*half {
			return notYet("%d of %d flows", right, 2*half)
		}
		return nil
	})
	// Detaching takes the kernel some 15 ms for each program. Records don't wait
	// for that: a service manager may kill an agent that takes long to stop.
	for i := range 2 * half {
		sendUDP(t, h, fmt.Sprintf("peer%d", i), 6000, 1)
	}
	a.covered(t)
	a.stop(t)
	n := sum(readLines(t, a.path("flows.jsonl")), func(r *record) bool { return r.Dport == 6000 && r.Direction == "ingress" })
	if n.Packets != 2*half {
		t.Errorf("%d of %d packets are exported", n.Packets, 2*half)
	}
	file, err := os.Stat(a.path("flows.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if detached := a.logged(t, "detached"); !file.ModTime().Before(detached) {
		t.Errorf("the last record was written at %v, and all programs were detached at %v", file.ModTime(), detached)
	}
	if got := attached(t, h); got != "" {
		t.Errorf("left: %s", got)
	}
}

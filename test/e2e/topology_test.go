package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology/timeline"
	"github.com/waymark-net/waymark/test/await"
)

// graph is `waymark topology -o json`.
func (a *agent) graph(t *testing.T, args ...string) (g timeline.Graph) {
	t.Helper()
	r := a.ask(t, "topology", append([]string{"-o", "json"}, args...)...)
	wants(t, r, 0)
	if err := json.Unmarshal([]byte(r.stdout), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// hasNode reports whether a graph has a node.
func hasNode(g timeline.Graph, id string) bool {
	for _, n := range g.Nodes {
		if n.ID == id {
			return true
		}
	}
	return false
}

func ip(t *testing.T, h *lab.Host, args string) {
	t.Helper()
	if err := h.Do(func() error {
		out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
		if err != nil {
			t.Logf("%s", out)
		}
		return err
	}); err != nil {
		t.Fatalf("ip %s: %v", args, err)
	}
}

// TestTopology: what changes is another version, which is reported as it comes; traffic makes none. The state of a moment can
// be asked for, also by an agent that was started since.
func TestTopology(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	config := quick + "interfaces: [to-*]\nhistory: {use: always, path: DIR/history}\n"
	a := start(t, setup{host: alpha, config: config})
	await.Success(t, func() error {
		if r := a.ask(t, "topology"); !strings.Contains(r.stdout, "to-beta veth") {
			return notYet("%s%s", r.stdout, r.stderr)
		}
		return nil
	})
	follower := spawn(t, nil, exec.Command(program, "topology", "--follow", "--socket", a.socket))
	await.Success(t, func() error {
		if a.status(t).API.Followers == 0 {
			return notYet("nobody follows")
		}
		return nil
	})
	before := time.Now()
	ip(t, alpha, "link add br7 type bridge")
	ip(t, alpha, "link add v7 type veth peer name w7")
	ip(t, alpha, "link set v7 master br7")
	await.Success(t, func() error {
		if r := a.ask(t, "topology"); !strings.Contains(r.stdout, "br7 bridge") || !strings.Contains(r.stdout, "└─ v7 veth") {
			return notYet("%s", r.stdout)
		}
		if !strings.Contains(follower.stdout.String(), "added    interface//br7") {
			return notYet("follower: %s", follower.stdout)
		}
		return nil
	})
	// The kernel learns of beta by traffic; then more of it is no change.
	ping := func() {
		t.Helper()
		if err := alpha.Do(exec.Command("ping", "-c", "3", "-i", "0.01", "-n", beta.Addr6().String()).Run); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	await.Success(t, func() error {
		if r := a.ask(t, "topology"); !strings.Contains(r.stdout, beta.Addr6().String()) {
			return notYet("beta is no neighbour: %s", r.stdout)
		}
		return nil
	})
	first, drains := a.status(t).Topology.Versions, a.status(t).Drain.Count
	for range 20 {
		ping()
	}
	await.True(t, "20 scans", func() bool { return a.status(t).Drain.Count > drains+20 })
	// beta's other address may appear meanwhile, but not 20 times.
	if last := a.status(t).Topology.Versions; last > first+3 {
		t.Errorf("traffic made %d versions", last-first)
	}

	since := a.graph(t).Since
	ip(t, alpha, "link del br7")
	await.True(t, "the bridge to be gone", func() bool { return !hasNode(a.graph(t), "interface//br7") })
	a.signal(unix.SIGTERM)
	a.wait(t)
	again := start(t, setup{host: alpha, config: strings.ReplaceAll(config, "DIR", a.dir)})
	await.True(t, "a topology", func() bool { return again.ask(t, "topology").code == 0 })
	if g := again.graph(t, "--at", since.Format(time.RFC3339Nano)); !hasNode(g, "interface//br7") {
		t.Errorf("at %v, there is no bridge: %+v", since, g)
	}
	if g := again.graph(t, "--at", before.Format(time.RFC3339Nano)); hasNode(g, "interface//br7") {
		t.Error("before it was made, there is a bridge")
	}
	if hasNode(again.graph(t), "interface//br7") {
		t.Error("now, there is a bridge")
	}
	wants(t, again.ask(t, "topology", "--at", "30d"), 1, "the oldest version is of")
	wants(t, again.ask(t, "topology", "--at", "whenever"), 2, "--at whenever")
	if r := again.ask(t, "topology", "-o", "dot"); !strings.HasPrefix(r.stdout, "graph waymark {") {
		t.Errorf("dot: %s", r.stdout)
	}
}

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

const markAll = "pdm: {mode: packet, policies: [{to: '::/0', for: 1h}]}\n"

// reducible are the IPv6 MTU and gso_max_segs of an interface.
func reducible(t *testing.T, h *lab.Host, iface string) string {
	t.Helper()
	mtu := must(t, h, "cat", "/proc/sys/net/ipv6/conf/"+iface+"/mtu")
	link := must(t, h, "ip", "-d", "link", "show", iface)
	segments := regexp.MustCompile(`gso_max_segs (\d+)`).FindString(link)
	return strings.TrimSpace(mtu) + " " + segments
}

// What an agent reduced for its marks is restored after SIGKILL by the next one,
// though that marks nothing, listens elsewhere and finds another name; or by
// `waymark restore`.
func TestKilledWhileMarking(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	iface := alpha.Interfaces[0].Name
	before := reducible(t, alpha, iface)
	for round, restore := range []func(){
		func() { start(t, setup{host: alpha, config: quick + "interfaces: ['*']\n"}).stop(t) },
		func() { must(t, nil, program, "restore") },
	} {
		a := start(t, setup{host: alpha, config: quick + markAll + "interfaces: ['" + iface + "']\n"})
		status := a.status(t)
		reduced := pdmservice.StatusOf(&status).Reduced
		want := []pdmservice.Reduction{
			{Iface: iface, Setting: "IPv6 MTU", From: 1500, To: 1484},
			{Iface: iface, Setting: "gso_max_segs", From: 65535, To: 1},
		}
		if fmt.Sprint(reduced) != fmt.Sprint(want) {
			t.Errorf("status lists %v, want %v", reduced, want)
		}
		if got := reducible(t, alpha, iface); got != "1484 gso_max_segs 1" {
			t.Errorf("while marking: %s", got)
		}
		a.kill()
		renamed := fmt.Sprintf("wan%d", round)
		must(t, alpha, "ip", "link", "set", iface, "down")
		must(t, alpha, "ip", "link", "set", iface, "name", renamed)
		must(t, alpha, "ip", "link", "set", renamed, "up")
		iface = renamed
		restore()
		if got := reducible(t, alpha, iface); got != before {
			t.Errorf("round %d: %s, before %s", round, got, before)
		}
	}
}

// An interface that has no MTU headroom is counted all the same, alone too.
func TestTooSmallToMark(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	iface := alpha.Interfaces[0].Name
	for _, h := range []*lab.Host{alpha, beta} {
		must(t, h, "ip", "link", "set", h.Interfaces[0].Name, "mtu", "1280")
	}
	a := start(t, setup{host: alpha, config: counting + markAll})
	port, segments := transfer(t, alpha, beta)
	hooks := a.status(t).Hooks
	if i := slices.IndexFunc(hooks, func(h obs.Hook) bool { return strings.Contains(h.Warning, "1296") }); i < 0 ||
		hooks[i].Iface != iface || hooks[i].Direction != "egress" || hooks[i].State != "attached" {
		t.Errorf("hooks %+v", hooks)
	}
	if got := must(t, nil, program, "status", "--socket", a.socket); !strings.Contains(got, "1296") {
		t.Errorf("status does not warn:\n%s", got)
	}
	must(t, alpha, "ip", "link", "set", iface, "mtu", "1500")
	await.Success(t, func() error {
		if got := reducible(t, alpha, iface); got != "1484 gso_max_segs 1" {
			return notYet("%s", got)
		}
		return nil
	})
	a.stop(t)
	has(t, readLines(t, a.path("flows.jsonl")), port, segments)
	if got := reducible(t, alpha, iface); got != "1500 gso_max_segs 65535" {
		t.Errorf("at the end: %s", got)
	}
}

// Too few open files are one error with the limit and the number needed, and that
// number is enough.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	for i := range 40 {
		must(t, alpha, "ip", "link", "add", fmt.Sprintf("to-%d", i), "type", "veth", "peer", "name", fmt.Sprintf("peer%d", i))
	}
	limited := func(n int) setup {
		return setup{host: alpha, config: strings.Replace(counting, "LINKS", "to-*", 1) + markAll, wrap: []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", n, n)}}
	}
	a, _ := launch(t, limited(60))
	a.wait(t)
	text := a.stderr.String()
	found := regexp.MustCompile(`RLIMIT_NOFILE\) is 60, and (\d+) are needed for 41 interfaces`).FindStringSubmatch(text)
	if found == nil || strings.Count(text, "\n") != 1 {
		t.Fatalf("said:\n%s", text)
	}
	needed, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	states := func(a *agent) map[string]int {
		count := map[string]int{}
		for _, h := range a.status(t).Hooks {
			count[h.State]++
		}
		return count
	}
	all := start(t, limited(needed))
	if got := states(all); got["attached"] != 82 {
		t.Errorf("with %d files: %v", needed, got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := api.NewClient(all.socket).Wait(ctx); err != nil {
		t.Errorf("not ready: %v", err)
	}
	all.stop(t)
}

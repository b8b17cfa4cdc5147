package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	forward "github.com/waymark-net/waymark/internal/forward/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/test/await"
)

// TestForwardStatus: the status names what an interface of forward.interfaces takes part in, and those that are not there; so
// do all formats, and rules of netfilter that come and go change it.
func TestForwardStatus(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\nforward: {interfaces: [to-beta, missing0]}\n"})
	status := func() (s forward.Status) {
		t.Helper()
		if err := json.Unmarshal([]byte(must(t, nil, program, "forward", "status", "-o", "json", "--socket", a.socket)), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := status()
	if len(s.Interfaces) != 2 || s.Interfaces[0].Iface != "to-beta" || s.Interfaces[1].Iface != "missing0" ||
		!s.Interfaces[0].Receives || s.Interfaces[1].Receives || !strings.Contains(s.Interfaces[1].Reason, "no such interface") {
		t.Errorf("%+v", s)
	}
	for _, format := range []string{"table", "jsonl", "csv"} {
		if got := must(t, nil, program, "forward", "status", "-o", format, "--socket", a.socket); !strings.Contains(got, "to-beta") {
			t.Errorf("%s: %s", format, got)
		}
	}
	if got := must(t, nil, program, "status", "--socket", a.socket); !strings.Contains(got, "Forwarding at XDP") {
		t.Error(got)
	}
	must(t, alpha, "nft", "add table inet t; add chain inet t c { type filter hook forward priority 0; policy drop; }")
	await.True(t, "rules of netfilter that would be bypassed", func() bool {
		i := status().Interfaces[0]
		return !i.Receives && strings.Contains(i.Reason, "inet t c") && strings.Contains(i.Reason, "forward.bypass_netfilter")
	})
	must(t, alpha, "nft", "delete table inet t")
	await.True(t, "forwarding again", func() bool { return status().Interfaces[0].Receives })
}

// TestForwardOff: without the section, the command says what to configure.
func TestForwardOff(t *testing.T) {
	t.Parallel()
	_, alpha, _ := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\n"})
	r := waymark(t, "forward", "status", "--socket", a.socket)
	if r.code == 0 || !strings.Contains(r.stderr, "forward.interfaces") {
		t.Errorf("%+v", r)
	}
	a.stop(t)
}

// TestExplain: the running agent, which has given up privileges, has its programs try a packet that is described, given in
// hexadecimal or in a capture; rules that would end its way before are named, and mistakes get an answer.
func TestExplain(t *testing.T) {
	t.Parallel()
	l := labtest.New(t, lab.Config{Topology: "chain"})
	alpha, athos, beta := l.Host("alpha"), l.Host("athos"), l.Host("beta")
	for _, h := range l.Hosts() {
		for _, i := range h.Interfaces {
			if err := h.SetFeatures(i.Name, true, "rx-gro"); err != nil {
				t.Fatal(err)
			}
		}
	}
	must(t, alpha, "ping", "-c1", "-W9", beta.Addr4().String()) // now neighbours are known
	a := start(t, setup{host: athos, config: quick + "interfaces: [LINKS]\nforward: {interfaces: [to-alpha, to-porthos]}\ngate: {interfaces: [to-alpha]}\n"})
	wants(t, a.rules(t, "add", "drop udp dst port 9"), 0)
	explain := func(args ...string) result {
		t.Helper()
		return waymark(t, append([]string{"forward", "explain", "--socket", a.socket}, args...)...)
	}
	packet := []string{"to-alpha", "src", alpha.Addr4().String(), "dst", beta.Addr4().String(), "udp", "dst", "port"}
	file := filepath.Join(t.TempDir(), "out.pcapng")
	r := explain(append(packet, "53", "--hex", "--write", file)...)
	wants(t, r, 0)
	for _, want := range []string{"the packet leaves by to-porthos to ", "forwarded", "TTL", "63"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is not in %s", want, r.stdout)
		}
	}
	sent := r.stdout[strings.LastIndex(strings.TrimSpace(r.stdout), "\n"):] // as it leaves
	if got := must(t, nil, "tshark", "-r", file, "-T", "fields", "-e", "ip.ttl", "-e", "udp.dstport", "-o", "ip.check_checksum:TRUE", "-e", "ip.checksum.status"); got != "63\t53\t1\n" {
		t.Errorf("the file has %q", got)
	}
	r = explain(append(packet, "9")...)
	if wants(t, r, 0); !strings.Contains(r.stdout, " decides: drop udp dst port 9") {
		t.Error(r.stdout)
	}
	r = explain("to-alpha", strings.TrimSpace(sent))
	if wants(t, r, 0); !strings.Contains(r.stdout, "the packet goes to the kernel") || !strings.Contains(r.stdout, "other_mac") {
		t.Error(r.stdout)
	}
	r = explain("to-alpha", strings.TrimSpace(sent)[28:]) // without its link header
	if wants(t, r, 0); !strings.Contains(r.stdout, "the packet leaves by to-porthos") {
		t.Error(r.stdout)
	}
	r = explain("to-alpha", file)
	if wants(t, r, 0); !strings.HasPrefix(r.stdout, "1 packet\n") || !strings.Contains(r.stdout, "other_mac") {
		t.Error(r.stdout)
	}
	var answer stage.Answer
	if err := json.Unmarshal([]byte(explain(append(packet, "53", "-o", "json")...).stdout), &answer); err != nil || answer.Packets[0].Leaves == nil || answer.Packets[0].Leaves.TTL != 63 {
		t.Errorf("%+v, %v", answer, err)
	}
	wants(t, explain("to-nobody", "src", "192.0.2.1", "dst", "192.0.2.2", "udp"), 2, "there are to-alpha, to-porthos")
	wants(t, explain("to-alpha", "src", "192.0.2.1", "dst", "192.0.2.2"), 2, "write tcp, udp, icmp")
	wants(t, explain("to-alpha", "src", "192.0.2.1", "tcp"), 2, "write src and dst")
	wants(t, explain("to-alpha"), 2)
	wants(t, waymark(t, "balance", "explain", "--socket", a.socket, "to-alpha", "src", "192.0.2.1", "dst", "192.0.2.2", "udp"), 1, "the balancer of this agent is off")
}

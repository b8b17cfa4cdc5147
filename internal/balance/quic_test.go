package balance

import (
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
)

// oracle builds a program of test/oracles, or finds it built.
func oracle(t *testing.T, name string) string {
	t.Helper()
	dir, err := filepath.Abs("../../test/oracles")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "-n", name)
	cmd.Dir = dir
	var said strings.Builder
	cmd.Stderr = &said
	path, err := cmd.Output()
	if err != nil {
		t.Fatalf("build %s: %v: %s\nwithout a network, run this where there is one: cd test/oracles && go mod download", name, err, said.String())
	}
	return strings.TrimSpace(string(path))
}

// TestQUICMigration: connections of a real QUIC client, which moves to another address and port, stay on their backend where its
// servers make connection IDs that name it; where they do not, they end.
func TestQUICMigration(t *testing.T) {
	program := oracle(t, "quic")
	s := newScene(t, 3, Config{})
	run(t, s.client, "ip addr add 10.1.0.9/24 dev e")
	one := s.serviceOf(vip4, 443, packet.ProtoUDP, GUE, false)
	one.QUIC = &QUIC{Config: 2, Length: 2}
	for n, h := range s.backends {
		one.Backends[n].ID = []byte{0xab, byte(n)}
		labtest.Begin(t, h, "listening", program, "server", netip.AddrPortFrom(vip4, 443).String(), fmt.Sprint(n), fmt.Sprintf("%02xab%02x", 2<<5|1, n))
	}
	s.apply(t, one)
	const connections = 8
	moves := func() (moved int, servers map[string]bool) {
		t.Helper()
		out, err := s.client.Run(t.Context(), program, "client", netip.AddrPortFrom(vip4, 443).String(), fmt.Sprint(connections), "10.1.0.9")
		if err != nil {
			t.Fatal(err)
		}
		servers = map[string]bool{}
		for line := range strings.Lines(out) {
			server, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			servers[server] = true
			if rest == "moved" {
				moved++
			}
		}
		if servers["-1"] {
			t.Fatalf("some get no server: %s", out)
		}
		return moved, servers
	}
	moved, servers := moves()
	if moved != connections || len(servers) < 2 {
		t.Errorf("%d of %d connections moved, servers %v: %+v", moved, connections, servers, s.stateOf(t, one.Name))
	}
	one.QUIC = nil
	s.apply(t, one)
	if moved, _ := moves(); moved == connections {
		t.Error("connections move also where connection IDs name no backend: this tests nothing")
	}
}

// TestIperf: iperf3 transfers through the balancer, by each way to the backend.
func TestIperf(t *testing.T) {
	s := newScene(t, 1, Config{})
	for i, how := range []Forwarding{L2, IPIP, GUE} {
		at := netip.AddrPortFrom(vip4, uint16(5201+i))
		one := s.serviceOf(vip4, at.Port(), packet.ProtoTCP, how, false)
		s.apply(t, one)
		got, state := labtest.Iperf(t, s.client, s.backends[0], at), s.stateOf(t, one.Name)
		t.Logf("%s: %+v, %d packets", forwardingNames[how], got, state.Packets[0])
		if got.Received < labtest.IperfBytes || state.Packets[0] < uint64(got.Received/1500) {
			t.Errorf("%s: %+v, %+v", forwardingNames[how], got, state)
		}
	}
}

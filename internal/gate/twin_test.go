package gate

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/soak"
)

func prefixOf(v6 bool, a []byte, bits int) string {
	addr, _ := netip.AddrFromSlice(a[:map[bool]int{false: 4, true: 16}[v6]])
	p, _ := addr.Prefix(bits) // it has so many
	return p.String()
}

// marker is the protocol of frames that no rule drops: what came before one has been decided.
const marker = 0x88b5

// path is a pair of interfaces of a host, and sockets behind the rules of the second.
type path struct {
	sender *labtest.Sender
	to     string
	ip     [2]int // sockets of IPv4 and IPv6
	marks  int
	passed []bool // by number of the frame
}

func newPath(t *testing.T, h *lab.Host, name string) *path {
	t.Helper()
	p := &path{to: name + "-in"}
	if err := h.Do(func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name + "-out"}, PeerName: p.to}
		err := netlink.LinkAdd(pair)
		for _, end := range []string{pair.Name, p.to} {
			if err == nil {
				err = netlink.LinkSetUp(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: end}})
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p.sender = labtest.NewSender(t, h, name+"-out")
	for proto, fd := range map[uint16]*int{unix.ETH_P_IP: &p.ip[0], unix.ETH_P_IPV6: &p.ip[1], marker: &p.marks} {
		if err := h.Do(func() (err error) {
			*fd, err = behind(p.to, proto)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(*fd) })
	}
	return p
}

// behind is a socket for frames of a protocol that rules have let pass.
func behind(iface string, proto uint16) (int, error) {
	l, err := net.InterfaceByName(iface)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	at := &unix.SockaddrLinklayer{Protocol: binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, proto)), Ifindex: l.Index}
	return fd, errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20), unix.Bind(fd, at))
}

// send sends frames whose numbers begin with first, and notes which have passed.
func (p *path) send(t *testing.T, first uint32, frames [][]byte) {
	t.Helper()
	mark := append([]byte{2, 0, 0, 0, 0, 2, 2, 1, 0, 0, 0, 0, marker >> 8, marker & 0xff}, make([]byte, 46)...)
	if err := p.sender.Send(append(frames, mark)...); err != nil {
		t.Fatal(err)
	}
	var b [12]byte
	await.True(t, "the end of some frames", func() bool {
		_, _, err := unix.Recvfrom(p.marks, b[:], 0)
		return err == nil
	})
	for _, fd := range p.ip {
		for {
			if _, _, err := unix.Recvfrom(fd, b[:], 0); err != nil {
				break
			}
			if n := binary.BigEndian.Uint32(b[8:]); b[6] == 2 && b[7] == 0 { // else one of the kernel's own
				p.passed[n] = true
			}
		}
	}
}

// nftCounts are the packets that the rules of the chain have matched, in their order.
func nftCounts(t *testing.T, h *lab.Host) (counts []uint64) {
	t.Helper()
	out, err := h.Run(t.Context(), "nft", "-j", "list", "chain", "netdev", "twin", "in")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Nftables []struct {
			Rule *struct {
				Expr []struct{ Counter *struct{ Packets uint64 } }
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, one := range list.Nftables {
		if one.Rule == nil {
			continue
		}
		for _, e := range one.Rule.Expr {
			if e.Counter != nil {
				counts = append(counts, e.Counter.Packets)
			}
		}
	}
	return counts
}

// TestTwin: the gate and nftables at ingress, on two paths with the same rule sets and the same packets (1,000,000 with SOAK=1), pass and
// drop the same, and their rules count the same.
func TestTwin(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft")
	}
	const sets, batch = 20, 500
	each := soak.Times(10_000, 50_000)
	h := labtest.NewHost(t)
	if err := h.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0) }); err != nil {
		t.Fatal(err)
	}
	own, other := newPath(t, h, "gate"), newPath(t, h, "nft")
	guards := []*guard{newGuard(t, h, own.to, ModeNative), nil}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	defer datapathtest.OnOneProcessor(t)() // what is sent first arrives first
	var dropped, total int
	for set := range sets {
		if set == sets/2 { // then at tc
			guards[0].dp.Close()
			guards[1] = newGuard(t, h, own.to, ModeTC)
		}
		g := guards[set/(sets/2)]
		twin := newTwinRules(r, []int{1, 8, 60, 300}[set%4])
		load(t, h, other.to, twin)
		before := counted(t, g, twin.gate.String())
		own.passed, other.passed = make([]bool, each), make([]bool, each)
		frames := make([][]byte, batch)
		for first := uint32(0); first < uint32(each); first += batch {
			for i := range frames {
				frames[i] = twinFrame(r, first+uint32(i), frames[i])
			}
			own.send(t, first, frames)
			other.send(t, first, frames)
			for i := range frames {
				n := first + uint32(i)
				total++
				if !own.passed[n] {
					dropped++
				}
				if own.passed[n] != other.passed[n] {
					t.Fatalf("passed %t by the gate, %t by nftables: %+v\n%s\nrules\n%s\n%s", own.passed[n], other.passed[n],
						rules.ReadEthernet(frames[i]), hex.EncodeToString(frames[i]), &twin.gate, &twin.nft)
				}
			}
		}
		after := counted(t, g, "")
		for i, n := range nftCounts(t, h) {
			if got := after[i] - before[i]; got != n {
				t.Errorf("rule %d of\n%s\ncounted %d packets, and in nftables %d", i+1, &twin.gate, got, n)
			}
		}
	}
	t.Logf("%d packets, %d dropped", total, dropped)
	if total != sets*each || dropped < total/20 || dropped > total*19/20 {
		t.Errorf("%d of %d packets dropped: that shows little", dropped, total)
	}
}

// counted applies rules, if there are some, and has what each of them has counted.
func counted(t *testing.T, g *guard, text string) (packets []uint64) {
	t.Helper()
	if text != "" {
		g.apply(t, text)
	}
	c, err := g.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range c.Rules {
		packets = append(packets, one.Packets)
	}
	return packets
}

// load has nftables decide by the same rules.
func load(t *testing.T, h *lab.Host, iface string, twin *twinRules) {
	t.Helper()
	file := t.TempDir() + "/rules.nft"
	text := fmt.Sprintf("table netdev twin\ndelete table netdev twin\ntable netdev twin {\n%schain in {\ntype filter hook ingress device %q priority 0; policy accept;\n%s%s}\n}\n",
		&twin.sets, iface, twinLater, strings.TrimSuffix(twin.nft.String(), " "))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := h.Run(t.Context(), "nft", "-f", file); err != nil {
		t.Fatalf("%v: %s\n%s", err, out, text)
	}
}

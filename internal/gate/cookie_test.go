package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// sysctl sets settings of a host's namespace, which ends with the test.
func sysctl(t *testing.T, h *lab.Host, settings map[string]string) {
	t.Helper()
	if err := h.Do(func() error {
		for name, value := range settings {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0o644); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// netstat is a counter of the TCP stack of a host.
func netstat(t *testing.T, h *lab.Host, name string) int {
	t.Helper()
	var text []byte
	if err := h.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/netstat")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for k, one := range names {
			if one == name {
				n, err := strconv.Atoi(values[k])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
		}
	}
	t.Fatalf("no counter %s", name)
	return 0
}

// listen makes a listener on a host; rcvbuf 0: the buffer is the kernel's choice.
func listen(t *testing.T, h *lab.Host, addr netip.AddrPort, rcvbuf int) net.Listener {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) {
			if rcvbuf > 0 {
				set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, rcvbuf)
			}
		})
		return errors.Join(err, set)
	}}
	var l net.Listener
	if err := h.Do(func() (err error) {
		l, err = config.Listen(context.Background(), "tcp", addr.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func tcpInfo(t *testing.T, c net.Conn) *unix.TCPInfo {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return info
}

// scalesOf are the window scales of a connection: a byte that the package has no name for.
func scalesOf(info *unix.TCPInfo) (send, receive uint8) {
	both := (*[unsafe.Sizeof(*info)]uint8)(unsafe.Pointer(info))[6]
	return both & 15, both >> 4
}

// exchange connects, sends data both ways and compares them, and what both ends know of
// the connection.
func exchange(t *testing.T, from *lab.Host, l net.Listener) (client, server *unix.TCPInfo) {
	t.Helper()
	type accepted struct {
		info *unix.TCPInfo
		err  error
	}
	done := make(chan accepted, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- accepted{nil, err}
			return
		}
		defer c.Close()
		info := tcpInfo(t, c)
		_, err = io.Copy(c, c) // an echo
		done <- accepted{info, err}
	}()
	var c net.Conn
	if err := from.Do(func() (err error) {
		c, err = net.DialTimeout("tcp", l.Addr().String(), await.Patience)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(await.Patience))
	client = tcpInfo(t, c)
	data := make([]byte, 2<<20)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		sent <- errors.Join(err, c.(*net.TCPConn).CloseWrite())
	}()
	got, err := io.ReadAll(c)
	if err := errors.Join(err, <-sent); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes of %d came back: %v", len(got), len(data), err)
	}
	a := <-done
	if a.err != nil {
		t.Fatal(a.err)
	}
	return client, a.info
}

// TestSYNCookies: clients connect through cookies at each hook that sends, and both ends
// agree on what was negotiated. The kernel of the server is the oracle: it made and
// accepted the cookies, and no SYN reached it.
func TestSYNCookies(t *testing.T) {
	for _, where := range []struct {
		mode   Mode
		bridge bool // at XDP behind the driver
		native bool // in the driver of veth, whose other end polls
	}{{mode: ModeTC}, {mode: ModeGeneric, bridge: true}, {mode: ModeNative, native: true}} {
		t.Run(fmt.Sprintf("%s,bridge_%t", where.mode, where.bridge), func(t *testing.T) {
			cfg := lab.Default()
			cfg.Prefix = labtest.Prefix()
			l := labtest.New(t, cfg)
			alpha, beta := l.Host("alpha"), l.Host("beta")
			iface := beta.Interfaces[0].Name
			if where.bridge {
				iface = bridge(t, beta)
			}
			if where.native {
				occupy(t, alpha, alpha.Interfaces[0].Name)
			}
			g := newGuard(t, beta, iface, where.mode)
			if where.native {
				p := g.ifaces[g.iface]
				p.sends = true
				g.ifaces[g.iface] = p
			}
			for _, c := range []struct {
				stamps string
				rcvbuf int
				v6     bool
			}{{stamps: "2"}, {stamps: "2", v6: true}, {stamps: "1"}, {stamps: "1", v6: true}, {stamps: "0"}, {stamps: "2", rcvbuf: 100000}} {
				name := fmt.Sprintf("timestamps %s, buffer %d, IPv6 %t", c.stamps, c.rcvbuf, c.v6)
				sysctl(t, beta, map[string]string{"ipv4/tcp_syncookies": "2", "ipv4/tcp_timestamps": c.stamps})
				addr := beta.Addr4()
				if c.v6 {
					addr = beta.Addr6()
				}
				server := listen(t, beta, netip.AddrPortFrom(addr, 0), c.rcvbuf)
				g.apply(t, fmt.Sprintf("syncookie tcp dst port %d", server.Addr().(*net.TCPAddr).Port))
				before, err := g.CookieCounts()
				if err != nil {
					t.Fatal(err)
				}
				sent, received := netstat(t, beta, "SyncookiesSent"), netstat(t, beta, "SyncookiesRecv")
				client, serving := exchange(t, alpha, server)
				after, err := g.CookieCounts()
				if err != nil {
					t.Fatal(err)
				}
				// A host that is slow to answer gets the SYN again.
				again := uint64(client.Total_retrans)
				if n := after["answered"] - before["answered"]; n < 1 || n > 1+again || after["returned"] == before["returned"] || after["dropped"] != before["dropped"] {
					t.Errorf("%s: %v, before %v", name, after, before)
				}
				// The kernel itself was asked for none, and accepted one.
				if s, r := netstat(t, beta, "SyncookiesSent")-sent, netstat(t, beta, "SyncookiesRecv")-received; s != 0 || r != 1 {
					t.Errorf("%s: the kernel sent %d cookies and accepted %d", name, s, r)
				}
				const stamps, sack, scales = 1, 2, 4 // TCPI_OPT_…
				want := uint8(0)
				if c.stamps == "2" {
					want = stamps | sack
					if c.rcvbuf == 0 {
						want |= scales
					}
				}
				cs, cr := scalesOf(client)
				ss, sr := scalesOf(serving)
				if client.Options&7 != want || serving.Options&7 != want || want&scales != 0 && (cs != sr || ss != cr || sr == 0) {
					t.Errorf("%s: options of the client %#x (scales %d, %d), of the server %#x (scales %d, %d), want %#x", name, client.Options, cs, cr, serving.Options, ss, sr, want)
				}
				if serving.Snd_mss < 1200 || client.Snd_mss < 1200 {
					t.Errorf("%s: segments of the client %d, of the server %d bytes", name, client.Snd_mss, serving.Snd_mss)
				}
			}
		})
	}
}

package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// pair is two hosts with addresses, and a probe on the first one's interface.
func pair(t *testing.T) (l *lab.Lab, a, b *lab.Host, c *Capture) {
	t.Helper()
	l = labtest.New(t, lab.Config{})
	a, b = l.Hosts()[0], l.Hosts()[1]
	c = load(t, Default(), Deps{})
	must(t, c.Attach(Target{Iface: ifaceOf(t, a), Name: a.Interfaces[0].Name, Do: a.Do}))
	return l, a, b, c
}

func ifaceOf(t *testing.T, h *lab.Host) flow.Iface {
	t.Helper()
	var i *net.Interface
	must(t, h.Do(func() (err error) {
		i, err = net.InterfaceByName(h.Interfaces[0].Name)
		return err
	}))
	return flow.NewIface(1, uint32(i.Index))
}

// connection is a TCP connection that has ended.
type connection struct {
	src, dst netip.AddrPort // src is its initiator
	sent     uint64         // bytes by the initiator, those sent again included
}

// bufferSize holds a whole transfer, so that no window cuts segments short.
const bufferSize = 64 << 20

// transfer sends bytes from one host to another by TCP and returns once the
// receiver has them all and both ends are closed.
func transfer(t *testing.T, from, to *lab.Host, amount int) (c connection) {
	t.Helper()
	big := func(option int) func(_, _ string, raw syscall.RawConn) error {
		return func(_, _ string, raw syscall.RawConn) error {
			return control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, bufferSize) })
		}
	}
	ctx := t.Context()
	var l net.Listener
	must(t, to.Do(func() (err error) {
		config := net.ListenConfig{Control: big(unix.SO_RCVBUFFORCE)}
		l, err = config.Listen(ctx, "tcp", netip.AddrPortFrom(to.Addr4(), 0).String())
		return err
	}))
	defer l.Close()
	received := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			received <- err
			return
		}
		defer conn.Close()
		n, err := io.Copy(io.Discard, conn)
		if err == nil && n != int64(amount) {
			err = fmt.Errorf("%d bytes arrived, %d were sent", n, amount)
		}
		received <- err
	}()
	c.dst = l.Addr().(*net.TCPAddr).AddrPort()
	must(t, from.Do(func() error {
		dialer := net.Dialer{Control: big(unix.SO_SNDBUFFORCE)}
		dialed, err := dialer.DialContext(ctx, "tcp", c.dst.String())
		if err != nil {
			return err
		}
		defer dialed.Close()
		conn := dialed.(*net.TCPConn)
		c.src = conn.LocalAddr().(*net.TCPAddr).AddrPort()
		if _, err := conn.Write(make([]byte, amount)); err != nil {
			return err
		}
		// Half closed: the other end closes when it has read everything.
		if err := conn.CloseWrite(); err != nil {
			return err
		}
		if _, err = io.Copy(io.Discard, conn); err != nil {
			return err
		}
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		return control(raw, func(fd int) error {
			info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
			if err == nil {
				c.sent = info.Bytes_sent
			}
			return err
		})
	}))
	must(t, <-received)
	return c
}

// control runs f on a socket.
func control(raw syscall.RawConn, f func(fd int) error) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

// halves finds the two flows of a TCP connection at its initiator.
func (c connection) halves(t *testing.T, got map[flow.Key]flow.Counts) (out, in flow.Counts) {
	t.Helper()
	src, dst := c.src, c.dst
	for k, counts := range got {
		switch {
		case k.Proto != protoTCP:
		case k.Direction == flow.Egress && k.SrcPort == src.Port() && k.DstPort == dst.Port():
			out = counts
		case k.Direction == flow.Ingress && k.SrcPort == dst.Port() && k.DstPort == src.Port():
			in = counts
		}
	}
	if out.Packets == 0 || in.Packets == 0 {
		t.Fatalf("no flow between %v and %v among %v", src, dst, got)
	}
	return out, in
}

// A transfer is counted in segments as they are on the wire, whether bursts
// travel whole or not: payload exactly as the kernel says, and packets as a capture of the same
// interface by tcpdump has them when tshark's lengths are cut by the MSS.
func TestOffloads(t *testing.T) {
	const amount = 20 << 20
	l, a, b, c := pair(t)
	// How a transfer is cut into segments depends on when its sender may send, and is
	// not compared between transfers.
	for _, on := range []bool{true, false} {
		must(t, l.SetOffloads(lab.VethDefault, on))
		drained(t, c)
		file, stop := tcpdump(t, a)
		conn := transfer(t, a, b, amount)
		stop()
		out, in := conn.halves(t, drained(t, c))
		judge := conn.segments(t, file)

		if on && out.Frames*4 > out.Packets {
			t.Errorf("%d frames of %d packets: the transfer had no bursts", out.Frames, out.Packets)
		}
		if !on && out.Frames != out.Packets {
			t.Errorf("%d frames of %d packets without offloads", out.Frames, out.Packets)
		}
		if out.PayloadBytes != conn.sent || conn.sent < amount || in.PayloadBytes != 0 {
			t.Errorf("offloads %v: payload of %d bytes out and %d in; the kernel sent %d", on, out.PayloadBytes, in.PayloadBytes, conn.sent)
		}
		if out.Packets != judge.packets || out.Bytes != judge.bytes || out.WireBytes != judge.bytes+14*judge.packets {
			t.Errorf("offloads %v: %d packets, %d bytes, %d on the wire; tshark has %d packets of %d bytes",
				on, out.Packets, out.Bytes, out.WireBytes, judge.packets, judge.bytes)
		}
		if lost := uncounted(t, c)["ring_full"]; lost > 0 {
			t.Errorf("%d packets lost", lost)
		}
	}
}

// tcpdump captures on a host's interface until stop is called.
func tcpdump(t *testing.T, h *lab.Host) (file string, stop func()) {
	t.Helper()
	for _, tool := range []string{"tcpdump", "tshark"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: nobody independent can count", tool)
		}
	}
	file = filepath.Join(t.TempDir(), "second.pcap")
	cmd := exec.Command("tcpdump", "-i", h.Interfaces[0].Name, "-n", "-s", "128", "-B", "65536", "-U", "-w", file, "-Z", "root")
	var stderr await.Text
	cmd.Stderr = &stderr
	must(t, h.Start(cmd))
	await.True(t, "tcpdump listening", func() bool { return strings.Contains(stderr.String(), "listening on") })
	return file, func() {
		t.Helper()
		// It writes out what the kernel hands over, at the latest after a second.
		await.True(t, "tcpdump writing the last packet", func() bool { return hasFIN(file) })
		must(t, cmd.Process.Signal(unix.SIGINT))
		must(t, cmd.Wait())
		if !strings.Contains(stderr.String(), "\n0 packets dropped by kernel") {
			t.Fatalf("the judge lost packets: %s", stderr.String())
		}
	}
}

// hasFIN says whether both ends of a connection have closed, in a capture that
// is still being written.
func hasFIN(file string) bool {
	out, _ := exec.Command("tcpdump", "-n", "-r", file, "tcp[tcpflags] & tcp-fin != 0").Output()
	return bytes.Count(out, []byte("\n")) >= 2
}

type judged struct{ packets, bytes uint64 }

// segments is what tshark finds of the initiator's half, bursts cut into
// segments of the MSS that the SYN-ACK tells, less the timestamp option.
func (c connection) segments(t *testing.T, file string) judged {
	t.Helper()
	filter := fmt.Sprintf("tcp.srcport==%d && tcp.dstport==%d", c.src.Port(), c.dst.Port())
	reverse := fmt.Sprintf("tcp.srcport==%d && tcp.flags.syn==1", c.dst.Port())
	mss := fields(t, file, reverse, "tcp.options.mss_val")[0][0] - 12
	var j judged
	for _, f := range fields(t, file, filter, "ip.len", "tcp.len") {
		total, payload := f[0], f[1]
		n := max(1, (payload+mss-1)/mss)
		j.packets += n
		j.bytes += total + (n-1)*(total-payload)
	}
	return j
}

// fields are numbers that tshark finds in the packets that match a filter.
func fields(t *testing.T, file, filter string, names ...string) [][]uint64 {
	t.Helper()
	args := []string{"-n", "-r", file, "-Y", filter, "-T", "fields", "-E", "occurrence=f", "-o", "ip.tso_support:TRUE"}
	for _, n := range names {
		args = append(args, "-e", n)
	}
	out, err := exec.Command("tshark", args...).Output()
	must(t, err)
	var rows [][]uint64
	for line := range strings.Lines(string(out)) {
		var row []uint64
		for _, v := range strings.Split(strings.TrimSpace(line), "\t") {
			n, err := strconv.ParseUint(v, 0, 64)
			must(t, err)
			row = append(row, n)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatalf("tshark finds nothing for %q in %s", filter, file)
	}
	return rows
}

// UDP bursts (UDP_SEGMENT) are counted by segment, each with its headers.
func TestUDPBursts(t *testing.T) {
	const bursts, size, count, last = 50, 1000, 10, 400
	_, a, b, c := pair(t)
	drained(t, c)
	must(t, a.Do(func() error {
		conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(b.Addr6(), 9)))
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.SyscallConn()
		if err != nil {
			return err
		}
		err = control(raw, func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, size) })
		if err != nil {
			return err
		}
		for range bursts {
			// Port unreachable comes back for some, and is reported by the next write.
			for try := 0; ; try++ {
				if _, err := conn.Write(make([]byte, (count-1)*size+last)); err == nil {
					break
				} else if try > 3 {
					return err
				}
			}
		}
		return nil
	}))
	for k, got := range drained(t, c) {
		if k.Proto != protoUDP || k.DstPort != 9 {
			continue
		}
		want := flow.Counts{Counters: flow.Counters{Packets: bursts * count, PayloadBytes: bursts * ((count-1)*size + last)}, Frames: bursts}
		want.Bytes = want.PayloadBytes + want.Packets*48
		want.WireBytes = want.Bytes + want.Packets*14
		want.FrameBytes = want.PayloadBytes + want.Frames*(48+14)
		want.TTLMin, want.TTLMax, want.FlowLabel = 64, 64, got.FlowLabel
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		return
	}
	t.Error("no flow to port 9")
}

// The round trips of a handshake, seen at the initiator: the way to the
// responder and back is the whole path, the way to the initiator is nothing.
func TestHandshakeOnVeth(t *testing.T) {
	_, a, b, c := pair(t)
	drained(t, c)
	conn := transfer(t, a, b, 1000)
	out, in := conn.halves(t, drained(t, c))
	if in.RTT.Responder <= 0 || in.RTT.Responder > await.Patience || in.RTT.Initiator != 0 {
		t.Errorf("flow of the SYN-ACK: %+v", in.RTT)
	}
	if out.RTT.Responder != in.RTT.Responder || out.RTT.Initiator <= 0 || out.RTT.Initiator > await.Patience {
		t.Errorf("flow of SYN and ACK: %+v, want the responder's %v and the initiator's", out.RTT, in.RTT.Responder)
	}
}

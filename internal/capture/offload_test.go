package capture

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
)

// pair is two hosts with addresses, and a probe on the first one's interface.
func pair(t *testing.T) (l *lab.Lab, a, b *lab.Host, c *Capture) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	namespaces++
	prefix := fmt.Sprintf("wm-capture-%d-%d-", os.Getpid(), namespaces)
	l, err := lab.Up(lab.Config{Prefix: prefix})
	must(t, err)
	t.Cleanup(func() { must(t, l.Down()) })
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

// transfer sends octets from one host to another by TCP and returns the
// connection's ends once the receiver has them all and both ends are closed.
func transfer(t *testing.T, from, to *lab.Host, octets int64) (src, dst netip.AddrPort) {
	t.Helper()
	var l *net.TCPListener
	must(t, to.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(to.Addr4(), 0)))
		return err
	}))
	defer l.Close()
	got := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- err
			return
		}
		defer conn.Close()
		n, err := io.Copy(io.Discard, conn)
		if err == nil && n != octets {
			err = fmt.Errorf("%d octets arrived, %d were sent", n, octets)
		}
		got <- err
	}()
	dst = l.Addr().(*net.TCPAddr).AddrPort()
	must(t, from.Do(func() error {
		conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(dst))
		if err != nil {
			return err
		}
		defer conn.Close()
		src = conn.LocalAddr().(*net.TCPAddr).AddrPort()
		// Large writes: the end of a small one may leave as a short segment.
		for left, chunk := octets, make([]byte, 1<<20); left > 0; {
			n, err := conn.Write(chunk[:min(left, 1<<20)])
			if err != nil {
				return err
			}
			left -= int64(n)
		}
		// Half closed: the other end closes when it has read everything.
		if err := conn.CloseWrite(); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, conn)
		return err
	}))
	must(t, <-got)
	return src, dst
}

// halves finds the two flows of a TCP connection at its initiator.
func halves(t *testing.T, got map[flow.Key]flow.Counts, src, dst netip.AddrPort) (out, in flow.Counts) {
	t.Helper()
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
// travel whole or not: payload exactly, and packets as a capture of the same
// interface by tcpdump has them when tshark's lengths are cut by the MSS.
func TestOffloads(t *testing.T) {
	const octets = 20 << 20
	l, a, b, c := pair(t)
	packets := map[bool]uint64{}
	for _, on := range []bool{true, false} {
		must(t, l.SetOffloads(lab.VethDefault, on))
		drained(t, c)
		file, stop := tcpdump(t, a)
		src, dst := transfer(t, a, b, octets)
		stop()
		out, in := halves(t, drained(t, c), src, dst)
		judge := segments(t, file, src, dst)

		if on && out.Frames*4 > out.Packets {
			t.Errorf("%d frames of %d packets: the transfer had no bursts", out.Frames, out.Packets)
		}
		if !on && out.Frames != out.Packets {
			t.Errorf("%d frames of %d packets without offloads", out.Frames, out.Packets)
		}
		if out.PayloadBytes != octets || in.PayloadBytes != 0 {
			t.Errorf("offloads %v: payload of %d octets out and %d in, want %d and 0", on, out.PayloadBytes, in.PayloadBytes, octets)
		}
		if out.Packets != judge.packets || out.Bytes != judge.bytes || out.WireBytes != judge.bytes+14*judge.packets {
			t.Errorf("offloads %v: %d packets, %d octets, %d on the wire; tshark has %d packets of %d octets",
				on, out.Packets, out.Bytes, out.WireBytes, judge.packets, judge.bytes)
		}
		packets[on] = out.Packets
		if lost := uncounted(t, c)["ring_full"]; lost > 0 {
			t.Errorf("%d packets lost", lost)
		}
	}
	if diff := int64(packets[true]) - int64(packets[false]); diff*100 > int64(packets[false]) || -diff*100 > int64(packets[false]) {
		t.Errorf("%d packets with offloads, %d without: more than 1 %% apart", packets[true], packets[false])
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
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	must(t, h.Start(cmd))
	eventually(t, "tcpdump listening", func() bool { return strings.Contains(stderr.String(), "listening on") })
	return file, func() {
		t.Helper()
		// It writes out what the kernel hands over, at the latest after a second.
		eventually(t, "tcpdump writing the last packet", func() bool { return hasFIN(file) })
		must(t, cmd.Process.Signal(unix.SIGINT))
		must(t, cmd.Wait())
		if !strings.Contains(stderr.String(), "\n0 packets dropped by kernel") {
			t.Fatalf("the judge lost packets: %s", stderr.String())
		}
	}
}

// hasFIN says whether both ends of a connection have closed, in a capture.
func hasFIN(file string) bool {
	out, err := exec.Command("tshark", "-n", "-r", file, "-Y", "tcp.flags.fin==1", "-T", "fields", "-e", "tcp.srcport").Output()
	return err == nil && bytes.Count(out, []byte("\n")) >= 2
}

type judged struct{ packets, bytes uint64 }

// segments is what tshark finds of one half of a connection, bursts cut into
// segments of the MSS that the SYN-ACK tells, less the timestamp option.
func segments(t *testing.T, file string, src, dst netip.AddrPort) judged {
	t.Helper()
	filter := fmt.Sprintf("tcp.srcport==%d && tcp.dstport==%d", src.Port(), dst.Port())
	reverse := fmt.Sprintf("tcp.srcport==%d && tcp.flags.syn==1", dst.Port())
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
		var failed error
		if err := raw.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size)
		}); err != nil || failed != nil {
			return fmt.Errorf("UDP_SEGMENT: %w, %w", err, failed)
		}
		for range bursts {
			// Port unreachable comes back for some, and is told by the next write.
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
		want := flow.Counts{Packets: bursts * count, Frames: bursts, PayloadBytes: bursts * ((count-1)*size + last)}
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
	src, dst := transfer(t, a, b, 1000)
	out, in := halves(t, drained(t, c), src, dst)
	if in.RTT.Responder <= 0 || in.RTT.Responder > time.Second || in.RTT.Initiator != 0 {
		t.Errorf("flow of the SYN-ACK: %+v", in.RTT)
	}
	if out.RTT.Responder != in.RTT.Responder || out.RTT.Initiator <= 0 || out.RTT.Initiator > time.Second {
		t.Errorf("flow of SYN and ACK: %+v, want the responder's %v and the initiator's", out.RTT, in.RTT.Responder)
	}
}

// eventually waits for what another process does.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

package analyze

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// counted is what a capture has of a flow.
type counted struct {
	packets, bytes uint64
	flags          uint16
	tos            uint8
	first, last    time.Time
}

// ends is how a flow is found again.
type ends struct {
	src, dst netip.AddrPort
	proto    uint8
}

// sent is a frame of a capture.
type sent struct {
	at    time.Time
	frame []byte
}

// conversations writes a capture with TCP, UDP and ICMP, and counts its flows.
func conversations(t *testing.T, path string, n int, v6 bool) (flows map[ends]*counted, frames []sent) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriterNanos(f)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	flows = map[ends]*counted{}
	start := time.Now().Add(-30 * time.Second).Truncate(time.Millisecond)
	at := start
	add := func(b packet.Builder, id ends, flags uint16, tos uint8) {
		frame := b.Bytes()
		at = at.Add(time.Millisecond)
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(frame), Length: len(frame)}, frame); err != nil {
			t.Fatal(err)
		}
		c := flows[id]
		if c == nil {
			c = &counted{tos: tos, first: at}
			flows[id] = c
		}
		c.packets++
		c.bytes += uint64(len(frame) - 14)
		c.flags |= flags
		c.last = at
		frames = append(frames, sent{at, frame})
	}
	eth := func(src, dst string) packet.Builder {
		if strings.Contains(src, ":") {
			return packet.Eth().IPv6(src, dst)
		}
		return packet.Eth().IPv4(src, dst)
	}
	for i := range n {
		client, server := fmt.Sprintf("10.0.%d.%d", i/200, i%200+1), "192.0.2.80"
		if v6 && i%2 == 1 {
			client, server = fmt.Sprintf("2001:db8::%x", i+1), "2001:db8:1::80"
		}
		a, b := netip.MustParseAddr(client), netip.MustParseAddr(server)
		port := uint16(2000 + i)
		id := func(proto uint8, sport, dport uint16) ends {
			return ends{netip.AddrPortFrom(a, sport), netip.AddrPortFrom(b, dport), proto}
		}
		reverse := func(id ends) ends { id.src, id.dst = id.dst, id.src; return id }
		switch i % 3 {
		case 0:
			there := id(6, port, 443)
			add(eth(client, server).TCP(port, 443).Flags(0x02), there, 0x02, 0)
			add(eth(server, client).TCP(443, port).Flags(0x12), reverse(there), 0x12, 0)
			for range i%5 + 1 {
				add(eth(client, server).TCP(port, 443).Flags(0x18).Payload(100+i), there, 0x18, 0)
				add(eth(server, client).TCP(443, port).Flags(0x10).Payload(1000), reverse(there), 0x10, 0)
			}
			add(eth(client, server).TCP(port, 443).Flags(0x11), there, 0x11, 0)
		case 1:
			there := id(17, port, 53)
			add(eth(client, server).UDP(port, 53).Payload(40), there, 0, 0)
			add(eth(server, client).UDP(53, port).Payload(200), reverse(there), 0, 0)
		case 2:
			there := id(17, port, 5001) // one way
			for range 3 {
				add(eth(client, server).UDP(port, 5001).Payload(i), there, 0, 0)
			}
		}
	}
	return flows, frames
}

// softflowd runs it on a capture. At the end of that it does not always end by itself; asked to, it exports what it still has.
func softflowd(t *testing.T, args ...string) (said *await.Text) {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("softflowd", append([]string{"-d", "-p", filepath.Join(dir, "pid"), "-c", filepath.Join(dir, "control")}, args...)...)
	said = &await.Text{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	select {
	case err := <-ended:
		ended <- err
	case <-time.After(2 * time.Second):
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	if err := await.Signal(t, "the end of softflowd", ended); err != nil {
		t.Errorf("softflowd: %v: %s", err, said)
	}
	return said
}

// exported checks what arrived of the flows of a capture. Times may be off by some.
func (r *receiving) exported(flows map[ends]*counted, margin time.Duration) {
	r.t.Helper()
	var packets uint64
	for _, c := range flows {
		packets += c.packets
	}
	r.arrived(packets)
	host := ""
	got := map[ends]flow.Record{}
	for _, row := range r.rows(api.Request{}) {
		got[endsOf(&row.Record)] = row.Record
		host = row.Host
	}
	for id, want := range flows {
		has, ok := got[id]
		if !ok || has.Packets != want.packets || has.Bytes != want.bytes || has.TCPFlags != want.flags {
			r.t.Errorf("%v: %+v, want %+v", id, has, want)
			continue
		}
		if a, b := has.First.Sub(want.first).Abs(), has.Last.Sub(want.last).Abs(); a > margin || b > margin {
			r.t.Errorf("%v: from %v to %v, want %v to %v", id, has.First, has.Last, want.first, want.last)
		}
	}
	if h := r.host(host); len(got) != len(flows) || h.Device == nil || len(h.Device.Lost)+len(h.Device.Dropped) > 0 || h.Device.Records != uint64(len(flows)) {
		r.t.Errorf("%d flows, want %d; %s: %+v %v", len(got), len(flows), host, h.Device, h.Problems)
	}
}

// coarse is how far times of NetFlow 9 may be off: they are relative to a header that has whole seconds.
const coarse = time.Second + 2*time.Millisecond

// TestSoftflowd: what softflowd makes of a capture arrives in each version, each flow with its packets.
func TestSoftflowd(t *testing.T) {
	need(t, "softflowd", "softflowd")
	for version, margin := range map[string]time.Duration{"5": 2 * time.Millisecond, "9": coarse, "10": 2 * time.Millisecond} {
		t.Run(version, func(t *testing.T) {
			r := receive(t)
			file := filepath.Join(t.TempDir(), "flows.pcap")
			flows, _ := conversations(t, file, 120, version != "5")
			softflowd(t, "-6", "-r", file, "-n", r.to, "-v", version, "-a")
			r.exported(flows, margin)
		})
	}
}

// TestNfreplay: what nfdump makes of a capture arrives in each version.
func TestNfreplay(t *testing.T) {
	need(t, "nfpcapd", "nfdump")
	for version, margin := range map[string]time.Duration{"5": coarse, "9": coarse} {
		t.Run(version, func(t *testing.T) {
			r := receive(t)
			dir := t.TempDir()
			flows, _ := conversations(t, filepath.Join(dir, "flows.pcap"), 120, version != "5")
			if out, err := exec.Command("nfpcapd", "-r", filepath.Join(dir, "flows.pcap"), "-l", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			files, err := filepath.Glob(filepath.Join(dir, "nfcapd.2*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("%q %v", files, err)
			}
			_, port, _ := net.SplitHostPort(r.to)
			for _, file := range files {
				if out, err := exec.Command("nfreplay", "-v", version, "-H", "127.0.0.1", "-p", port, "-r", file).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			r.exported(flows, margin)
		})
	}
}

// need skips the test where a program is missing.
func need(t *testing.T, program, from string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: apt-get install %s", program, from)
	}
}

func endsOf(r *flow.Record) ends {
	return ends{netip.AddrPortFrom(r.Src, r.SrcPort), netip.AddrPortFrom(r.Dst, r.DstPort), r.Proto}
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func addrPort(t *testing.T, address, port string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(a, uint16(number(t, port)))
}

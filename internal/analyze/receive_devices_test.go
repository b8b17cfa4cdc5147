package analyze

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/waymark-net/waymark/internal/analyze/state"

	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// send hands datagrams to the analyzer.
func send(t *testing.T, c net.Conn, datagrams ...devicetest.Buffer) {
	t.Helper()
	for _, b := range datagrams {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// record9 is a datagram of NetFlow 9 with its template, and one flow of so many packets.
func record9(source, sequence uint32, uptime time.Duration, packets uint32) devicetest.Buffer {
	return devicetest.At(devicetest.NetFlow9(source, sequence, uptime, devicetest.Set(0, devicetest.Template(256)), devicetest.Set(256, devicetest.Record(uint16(sequence), packets, 100*packets))), time.Now())
}

// TestDevices: each observation domain is a host; devices and protocols that are not named are refused, and counted.
func TestDevices(t *testing.T) {
	r := receive(t, func(c *settings.Config) { c.Receive[0].Protocols = []string{"netflow9", "ipfix"} })
	c := r.dial()
	send(t, c, record9(0, 1, time.Hour, 5), record9(7, 1, time.Hour, 6), devicetest.NetFlow5(1, time.Hour, 0, devicetest.Record5(1, 100, 0, 0)), devicetest.Buffer{}.U32(7, 7))
	stranger, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)}, c.RemoteAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	send(t, stranger, record9(0, 1, time.Hour, 50))
	r.arrived(11)
	if a, b := r.host("core1"), r.host("core1-7"); a.Device == nil || b.Device == nil || a.Device.Records != 1 || b.Device.Records != 1 || len(a.Problems)+len(b.Problems) > 0 {
		t.Errorf("%+v\n%+v", a, b)
	}
	await.Success(t, func() error {
		got := r.a.devices.Status()[0]
		if fmt.Sprint(got.Refused) != "map[malformed:1 other_protocol:1 unknown_device:1]" || got.Datagrams != 5 {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	status := r.a.Status()
	var text strings.Builder
	if err := state.Text(&text, &status); err != nil || !strings.Contains(text.String(), "core1-7") || !strings.Contains(text.String(), "netflow9") || !strings.Contains(text.String(), "1 refused (unknown_device), the latest from 127.0.0.") {
		t.Errorf("%v: %s", err, &text)
	}
	// An agent cannot take the name of a device.
	f := r.certificate(t, "core1")
	if status, text, _ := r.push(t, r.client(t, f.Cert, f.Key), bodyOf(1, 1, time.Now())); status != 403 || !strings.Contains(text, "a device without an agent") {
		t.Errorf("%d %s", status, text)
	}
}

// TestAnyDevice: where any may send, the address is the name; there are not more hosts than the configuration says.
func TestAnyDevice(t *testing.T) {
	r := receive(t, func(c *settings.Config) { c.Devices, c.Receive[0].Any, c.Hosts = nil, true, 2 })
	c := r.dial()
	send(t, c, record9(0, 1, time.Hour, 5), record9(1, 1, time.Hour, 6), record9(2, 1, time.Hour, 7), record9(2, 2, time.Hour, 7))
	r.arrived(11)
	if r.host("127.0.0.1").Device == nil || r.host("127.0.0.1-1").Device == nil {
		t.Errorf("%+v", r.a.devices.Status())
	}
	await.True(t, "two datagrams to be refused", func() bool { return r.a.devices.Status()[0].Refused["no_host"] == 2 })
}

// TestDeviceLosses: a datagram that comes twice counts once; what is missing is counted, but for a restart.
func TestDeviceLosses(t *testing.T) {
	t.Parallel()
	r := receive(t)
	c := r.dial()
	first := record9(0, 10, time.Hour, 1)
	send(t, c, first, first, record9(0, 12, time.Hour, 2), record9(0, 11, time.Hour, 4), record9(0, 15, time.Hour, 8), record9(0, 1, time.Second, 16), record9(0, 2, time.Second, 32))
	r.arrived(63)
	await.Success(t, func() error {
		h := r.host("core1")
		if fmt.Sprint(h.Device.Lost) != "map[datagrams:2]" || h.Device.Repeated != 1 || h.Device.Datagrams != 7 || len(h.Problems) != 1 || !strings.Contains(h.Problems[0], "2 datagrams were lost on the way") {
			return fmt.Errorf("%+v %q", h.Device, h.Problems)
		}
		return nil
	})
}

// TestDeviceSampling: counts are multiplied by the rate that the device reports, and the rate is shown.
func TestDeviceSampling(t *testing.T) {
	r := receive(t)
	send(t, r.dial(), devicetest.At(devicetest.NetFlow5(1, time.Hour, 1<<14|100, devicetest.Record5(3, 300, time.Minute, time.Hour)), time.Now()))
	r.arrived(300)
	if h := r.host("core1"); h.Device.Sampling != 100 {
		t.Errorf("%+v", h.Device)
	}
}

// TestDeviceFlood: of what a device sends too fast, each datagram is in a count: read, beyond the rate, or dropped by the kernel.
func TestDeviceFlood(t *testing.T) {
	r := receive(t, func(c *settings.Config) { c.Rate = 64 << 10 })
	c := r.dial()
	send(t, c, record9(0, 0, time.Hour, 1))
	r.arrived(1)
	r.a.mu.Lock()
	h := r.a.hosts[0]
	r.a.mu.Unlock()
	sent := uint64(1)
	flood := func(n int) {
		for range n {
			send(t, c, record9(0, uint32(sent), time.Hour, 1).Bytes(make([]byte, 1200)))
			sent++
		}
	}
	h.mu.Lock() // the receiver waits: the kernel's buffer fills
	flood(12_000)
	h.mu.Unlock()
	flood(2000) // more than the rate allows at once, with what is in the buffer
	await.Success(t, func() error {
		flood(1) // with the next one, the kernel says what it dropped before
		s, d := r.a.devices.Status()[0], r.host("core1").Device
		if s.KernelDropped == 0 || d.Dropped["rate"] == 0 || s.Datagrams+s.KernelDropped != sent && s.Datagrams+s.KernelDropped != sent-1 || d.Datagrams+d.Dropped["rate"]+1 < s.Datagrams {
			return fmt.Errorf("%d were sent: %+v %+v", sent, s, d)
		}
		return nil
	})
}

// TestDeviceRestart: the records of a device stay when the analyzer starts again, and it is still known to have no agent.
func TestDeviceRestart(t *testing.T) {
	s := newScene(t)
	change := func(c *settings.Config) {
		c.Receive = []settings.Receive{{Listen: "127.0.0.1:0"}}
		c.Devices = []settings.Device{{Address: "127.0.0.1", Name: "core1"}}
		c.ScanInterval = time.Hour // the end hands on what there is
	}
	a, stop := s.start(t, change)
	r := &receiving{s, t, a, a.devices.Status()[0].Listen}
	send(t, r.dial(), record9(0, 1, time.Hour, 5))
	await.True(t, "the datagram to arrive", func() bool { return a.devices.Status()[0].Datagrams == 1 })
	stop()
	a, _ = s.start(t, change)
	r = &receiving{s, t, a, a.devices.Status()[0].Listen}
	r.arrived(5)
	if h := r.host("core1"); len(h.Problems) != 1 || !strings.Contains(h.Problems[0], "see the configuration of the device") {
		t.Errorf("%+v", h)
	}
	send(t, r.dial(), record9(0, 2, time.Hour, 7))
	await.True(t, "the datagram to arrive", func() bool { return a.devices.Status()[0].Datagrams == 1 })
}

// tsharkSays is what tshark reads of samples of sFlow, one in each datagram: packets and bytes by flow, multiplied by the rate.
func tsharkSays(t *testing.T, datagrams []devicetest.Buffer) map[ends]*counted {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sflow.pcap")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for _, b := range datagrams {
		frame := packet.Eth().IPv4("192.0.2.9", "192.0.2.10").UDP(6343, 6343).Raw(b).Bytes()
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(frame), Length: len(frame), Timestamp: time.Now()}, frame); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	fields := []string{"sflow.flow_sample.sampling_rate", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst", "ip.len", "ipv6.plen", "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport"}
	args := []string{"-r", file, "-T", "fields", "-E", "occurrence=l", "-E", "separator=,"}
	for _, name := range fields {
		args = append(args, "-e", name)
	}
	out, err := exec.Command("tshark", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	flows := map[ends]*counted{}
	for line := range strings.Lines(string(out)) {
		v := strings.Split(strings.TrimSuffix(line, "\n"), ",")
		src, dst, bytes := v[1], v[2], number(t, v[5])
		if v[3] != "" {
			src, dst, bytes = v[3], v[4], number(t, v[6])+40
		}
		id := ends{addrPort(t, src, v[9]), addrPort(t, dst, v[10]), 17}
		if v[7] != "" {
			id = ends{addrPort(t, src, v[7]), addrPort(t, dst, v[8]), 6}
		}
		if flows[id] == nil {
			flows[id] = &counted{}
		}
		rate := number(t, v[0])
		flows[id].packets += rate
		flows[id].bytes += rate * bytes
	}
	return flows
}

// TestSFlowAsTshark: samples of a capture are the flows that tshark reads of them.
func TestSFlowAsTshark(t *testing.T) {
	need(t, "tshark", "tshark")
	r := receive(t)
	_, frames := conversations(t, filepath.Join(t.TempDir(), "flows.pcap"), 60, true)
	var datagrams []devicetest.Buffer
	for i, f := range frames {
		rate := uint32(100 + i%2*100)
		datagrams = append(datagrams, devicetest.SFlow(uint32(i+1), time.Hour, devicetest.Sample(rate, 3, 3, 4, 0, f.frame[:min(128, len(f.frame))], len(f.frame))))
	}
	want := tsharkSays(t, datagrams)
	var packets uint64
	for _, c := range want {
		packets += c.packets
	}
	send(t, r.dial(), datagrams...)
	r.arrived(packets)
	rows := r.rows(api.Request{})
	for _, row := range rows {
		c := want[endsOf(&row.Record)]
		if c == nil || row.Packets != c.packets || row.Bytes != c.bytes || row.Iface != "if3" || row.Direction != flow.Ingress {
			t.Errorf("%+v, want %+v", row.Record, c)
		}
	}
	if h := r.host("core1"); len(rows) != len(want) || len(h.Device.Lost)+len(h.Device.Dropped) > 0 || h.Device.Records != uint64(len(frames)) {
		t.Errorf("%d rows, want %d; %+v", len(rows), len(want), h.Device)
	}
}

// TestDeviceOfAgent: a device cannot take the name of an agent, also when the analyzer starts again and the device is the first to send.
func TestDeviceOfAgent(t *testing.T) {
	s := newScene(t)
	f := s.certificate(t, "core1")
	_, stop := s.start(t)
	if status, text, _ := s.push(t, s.client(t, f.Cert, f.Key), bodyOf(1, 1, time.Now())); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	stop()
	r := &receiving{scene: s, t: t}
	r.a, _ = s.start(t, func(c *settings.Config) {
		c.Receive = []settings.Receive{{Listen: "127.0.0.1:0"}}
		c.Devices = []settings.Device{{Address: "127.0.0.1", Name: "core1"}}
	})
	r.to = r.a.devices.Status()[0].Listen
	send(t, r.dial(), record9(0, 1, time.Hour, 5))
	await.True(t, "the datagram to be refused", func() bool { return r.a.devices.Status()[0].Datagrams == 1 })
	if refused := r.a.devices.Status()[0].Refused["no_host"]; refused != 1 || r.host("core1").Device != nil {
		t.Errorf("%d refused: %+v", refused, r.host("core1"))
	}
	if status, text, _ := s.push(t, s.client(t, f.Cert, f.Key), bodyOf(2, 1, time.Now())); status != 200 {
		t.Errorf("the agent: %d %s", status, text)
	}
}

// TestManyFlows: flows beyond what is kept of an interval are in its sums, and the status says so.
func TestManyFlows(t *testing.T) {
	problems := deviceProblems(&state.Device{Summed: 7}, 0)
	if len(problems) != 1 || !strings.Contains(problems[0], "7 flows were too many to keep") {
		t.Errorf("%q", problems)
	}
}

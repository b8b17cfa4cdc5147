package capture

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/packet"
)

// captureStart is the time of the first frame in files of these tests.
var captureStart = time.Unix(1_700_000_000, 123_456_789)

// mixture are frames of many flows: both families, tags, options, extension
// headers, padding; without what tshark attributes otherwise: later fragments,
// what is behind Mobility and HIP, IPv6 options in IPv4.
func mixture() [][]byte {
	var frames [][]byte
	for _, c := range packet.Cases() {
		kind, name, _ := strings.Cut(c.Name, "/")
		if !slices.Contains([]string{"link", "ipv4", "chain", "tcp", "udp"}, kind) ||
			slices.Contains([]string{"mobility", "hip", "destination options"}, name) {
			continue
		}
		if f := c.Frames[0]; len(c.Flows) > 0 && !f.L3 && f.Tag == nil {
			frames = append(frames, f.Data)
		}
	}
	for i := range 3000 {
		host := fmt.Sprintf("10.0.%d.%d", i%7, i%5)
		b := packet.Eth().IPv4("192.0.2.1", host)
		if i%3 == 0 {
			b = packet.Eth().VLAN(uint16(i%4)).IPv6("2001:db8::1", fmt.Sprintf("2001:db8::%x", i%11+1)).HopByHop()
		}
		if i%2 == 0 {
			b = b.TCP(uint16(40000+i%13), 50000)
		} else {
			b = b.UDP(uint16(40000+i%13), 50000)
		}
		frames = append(frames, b.Payload(i%300).Bytes())
	}
	return frames
}

// writeFile writes frames, a millisecond and a nanosecond apart.
func writeFile(t testing.TB, frames [][]byte, link layers.LinkType) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "frames.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriterNanos(f)
	if err := w.WriteFileHeader(1<<18, link); err != nil {
		t.Fatal(err)
	}
	for i, data := range frames {
		ci := gopacket.CaptureInfo{
			Timestamp:     captureStart.Add(time.Duration(i) * (time.Millisecond + 1)),
			CaptureLength: len(data), Length: len(data),
		}
		if err := w.WritePacket(ci, data); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// convert has editcap write a file in another format.
func convert(t *testing.T, path string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("editcap"); err != nil {
		t.Skip("editcap is not installed: nobody independent can write the formats")
	}
	to := filepath.Join(t.TempDir(), "converted")
	out, err := exec.Command("editcap", append(args, path, to)...).CombinedOutput()
	if err != nil {
		t.Fatalf("editcap: %v: %s", err, out)
	}
	return to
}

// tuple is what tshark and we know a flow by.
type tuple struct {
	Src, Dst            string
	Proto, SPort, DPort uint64
}

type tally struct {
	Packets, Bytes uint64
	First, Last    string
}

func (t tally) add(bytes uint64, at string) tally {
	if t.Packets == 0 {
		t.First = at
	}
	return tally{t.Packets + 1, t.Bytes + bytes, t.First, at}
}

// byTshark counts a file with tshark alone. Packets in which it finds no ports
// where there must be some, such as later fragments, have none.
func byTshark(t *testing.T, path string) map[tuple]tally {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: nobody independent can count")
	}
	names := []string{
		"frame.time_epoch", "ip.src", "ip.dst", "ip.proto", "ip.len", "ipv6.src", "ipv6.dst", "ipv6.plen",
		"tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport",
	}
	args := []string{
		"-n", "-r", path, "-Y", "(tcp || udp) && !icmp && !icmpv6 && !udplite", "-T", "fields", "-E", "occurrence=f", "-E", "separator=|",
		"-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-o", "udp.ignore_ipv6_zero_checksum:TRUE",
	}
	for _, n := range names {
		args = append(args, "-e", n)
	}
	out, err := exec.Command("tshark", args...).Output()
	must(t, err)
	counts := map[tuple]tally{}
	for line := range strings.Lines(string(out)) {
		v := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		number := func(i int) uint64 {
			n, err := strconv.ParseUint(v[i], 0, 64)
			must(t, err)
			return n
		}
		k := tuple{Src: v[1] + v[5], Dst: v[2] + v[6]}
		size := uint64(0)
		if v[4] != "" {
			size = number(4)
		} else {
			size = 40 + number(7)
		}
		if v[8] != "" {
			k.Proto, k.SPort, k.DPort = protoTCP, number(8), number(9)
		} else {
			k.Proto, k.SPort, k.DPort = protoUDP, number(10), number(11)
		}
		counts[k] = counts[k].add(size, v[0])
	}
	return counts
}

// byUs counts a file with ReadFile.
func byUs(t *testing.T, path string, decimals int) (map[tuple]tally, Summary) {
	t.Helper()
	counts := map[tuple]tally{}
	s, err := ReadFile(path, Default(), func(r *flow.Record) {
		if r.Proto != protoTCP && r.Proto != protoUDP {
			return
		}
		k := tuple{r.Src.String(), r.Dst.String(), uint64(r.Proto), uint64(r.SrcPort), uint64(r.DstPort)}
		// The table has VLANs and directions apart, tshark has not.
		c, known := counts[k]
		first, last := epoch(r.First, decimals), epoch(r.Last, decimals)
		if !known {
			c.First, c.Last = first, last
		}
		counts[k] = tally{c.Packets + r.Packets, c.Bytes + r.Bytes, min(c.First, first), max(c.Last, last)}
	})
	must(t, err)
	return counts, s
}

// epoch is a time as tshark prints it; all here have ten digits before the point.
func epoch(at time.Time, decimals int) string {
	s := fmt.Sprintf("%d.%09d", at.Unix(), at.Nanosecond())
	return s[:len(s)-9+decimals] + strings.Repeat("0", 9-decimals)
}

// In every format and link type, files are counted as tshark counts them.
func TestReadFileAsTshark(t *testing.T) {
	ethernet := writeFile(t, mixture(), layers.LinkTypeEthernet)
	var raw, cooked1, cooked2 [][]byte
	for _, f := range mixture() {
		tagless, etherType := f[etherLen:], binary.BigEndian.Uint16(f[12:])
		if etherType == typeIPv4 || etherType == typeIPv6 {
			raw = append(raw, tagless)
		}
		cooked1 = append(cooked1, slices.Concat([]byte{0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0}, f[12:14], tagless))
		cooked2 = append(cooked2, slices.Concat(f[12:14], []byte{0, 0, 0, 0, 0, 7, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0}, tagless))
	}
	for name, file := range map[string]struct {
		path     string
		decimals int
		cut      uint64 // frames whose headers were not captured whole
	}{
		"nanosecond pcap":        {ethernet, 9, 0},
		"pcap":                   {convert(t, ethernet, "-F", "pcap"), 6, 0},
		"pcapng":                 {convert(t, ethernet, "-F", "pcapng"), 9, 0},
		"raw IP":                 {writeFile(t, raw, layers.LinkTypeRaw), 9, 0},
		"cooked v1":              {writeFile(t, cooked1, layers.LinkTypeLinuxSLL), 9, 0},
		"cooked v2":              {writeFile(t, cooked2, layers.LinkTypeLinuxSLL2), 9, 0},
		"cooked v2 in pcapng":    {convert(t, writeFile(t, cooked2, layers.LinkTypeLinuxSLL2), "-F", "pcapng"), 9, 0},
		"cut to 100 bytes":       {convert(t, ethernet, "-F", "pcapng", "-s", "100"), 9, 5},
		"packed with gzip":       {gzipped(t, ethernet), 9, 0},
		"two sections, appended": {appended(t, convert(t, ethernet, "-F", "pcapng")), 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := byTshark(t, file.path)
			got, s := byUs(t, file.path, file.decimals)
			if len(want) < 100 {
				t.Fatalf("tshark finds only %d flows", len(want))
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("(-tshark +ours):\n%s", diff)
			}
			for _, u := range s.Uncounted {
				if u.Reason != "truncated" || u.Frames != file.cut {
					t.Errorf("uncounted: %+v", u)
				}
			}
		})
	}
}

func gzipped(t *testing.T, path string) string {
	t.Helper()
	data, err := exec.Command("gzip", "-c", path).Output()
	must(t, err)
	to := filepath.Join(t.TempDir(), "frames.gz")
	must(t, os.WriteFile(to, data, 0o600))
	return to
}

// appended is a pcapng file twice, one behind the other: two sections.
func appended(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	to := filepath.Join(t.TempDir(), "twice.pcapng")
	must(t, os.WriteFile(to, append(data, data...), 0o600))
	return to
}

// Where a file tells interface and direction, so do the records.
func TestInterfaceAndDirection(t *testing.T) {
	data := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()
	var file bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&file, pcapgo.NgInterface{Name: "eth7", LinkType: layers.LinkTypeEthernet}, pcapgo.DefaultNgWriterOptions)
	must(t, err)
	second, err := w.AddInterface(pcapgo.NgInterface{Name: "tun8", LinkType: layers.LinkTypeRaw})
	must(t, err)
	write := func(iface int, data []byte, direction pcapgo.NgEpbFlag) {
		ci := gopacket.CaptureInfo{Timestamp: captureStart, CaptureLength: len(data), Length: len(data), InterfaceIndex: iface}
		must(t, w.WritePacketWithOptions(ci, data, pcapgo.NgPacketOptions{Flags: &pcapgo.NgEpbFlags{Direction: direction}}))
	}
	write(0, data, pcapgo.NgEpbFlagDirectionInbound)
	write(0, data, pcapgo.NgEpbFlagDirectionOutbound)
	write(second, data[etherLen:], pcapgo.NgEpbFlagDirectionOutbound)
	write(second, data[etherLen:], pcapgo.NgEpbFlagDirectionUnknown)
	must(t, w.Flush())

	type seen struct {
		iface     string
		index     uint32
		direction flow.Direction
		wire      uint64
	}
	var got []seen
	_, err = Read(&file, Default(), func(r *flow.Record) {
		got = append(got, seen{r.Iface, r.IfIndex, r.Direction, r.WireBytes})
	})
	must(t, err)
	slices.SortFunc(got, func(a, b seen) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	want := []seen{
		{"eth7", 0, flow.Ingress, 42},
		{"eth7", 0, flow.Egress, 42},
		{"tun8", 1, flow.Ingress, 28},
		{"tun8", 1, flow.Egress, 28},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Frames of all interfaces of a host, captured by tcpdump, count as tshark
// counts them, and have the direction that it tells.
func TestReadFileOfAllInterfaces(t *testing.T) {
	_, a, b, _ := pair(t)
	a.Interfaces[0].Name = "any"
	file, stop := tcpdump(t, a)
	conn := transfer(t, a, b, 1<<20)
	stop()
	want, got := byTshark(t, file), map[tuple]tally{}
	_, err := ReadFile(file, Default(), func(r *flow.Record) {
		if r.Proto != protoTCP {
			return
		}
		if egress := r.SrcPort == conn.src.Port(); egress != (r.Direction == flow.Egress) {
			t.Errorf("direction of %d to %d is %v", r.SrcPort, r.DstPort, r.Direction)
		}
		k := tuple{r.Src.String(), r.Dst.String(), uint64(r.Proto), uint64(r.SrcPort), uint64(r.DstPort)}
		got[k] = tally{r.Packets, r.Bytes, epoch(r.First, 6), epoch(r.Last, 6)}
		if r.WireBytes != r.Bytes+14*r.Packets || r.IfIndex == 0 {
			t.Errorf("%d bytes on the wire of %d packets with %d bytes, on interface %d", r.WireBytes, r.Packets, r.Bytes, r.IfIndex)
		}
	})
	must(t, err)
	if diff := gocmp.Diff(want, got); diff != "" || len(got) != 2 {
		t.Errorf("from %v to %v (-tshark +ours):\n%s", conn.src, conn.dst, diff)
	}
}

// Bad files are refused, by name, with the place and the remedy; what was whole
// is counted.
func TestReadFileErrors(t *testing.T) {
	whole := writeFile(t, mixture()[:10], layers.LinkTypeEthernet)
	data, err := os.ReadFile(whole)
	must(t, err)
	ng, err := os.ReadFile(convert(t, whole, "-F", "pcapng"))
	must(t, err)
	for name, tt := range map[string]struct {
		data   []byte
		frames uint64
		is     error
		want   []string
	}{
		"empty":                {nil, 0, capfile.ErrFormat, []string{"byte 0", "it is empty", "tcpdump -w"}},
		"text":                 {[]byte("#!/bin/sh\n"), 0, capfile.ErrFormat, []string{"byte 0", "begins with 23 21 2f 62"}},
		"half a file header":   {data[:20], 0, io.ErrUnexpectedEOF, []string{"byte 0", "truncated"}},
		"half a frame header":  {data[:24+8], 0, io.ErrUnexpectedEOF, []string{"frame 1 at byte 24", "truncated"}},
		"a frame's header":     {data[:24+16], 0, io.ErrUnexpectedEOF, []string{"frame 1 at byte 24", "truncated"}},
		"half a frame":         {data[:len(data)-5], 9, io.ErrUnexpectedEOF, []string{"frame 10 at byte ", "everything before was counted"}},
		"pcapng, half a frame": {ng[:len(ng)-40], 9, io.ErrUnexpectedEOF, []string{"frame 10 at byte ", "everything before was counted"}},
		"absurd frame length": {
			slices.Concat(data[:24+8], bytes.Repeat([]byte{0xff}, 8), data[24+16:]), 0, nil,
			[]string{"frame 1 at byte 24", "at most"},
		},
		"link type of WLAN": {
			slices.Concat(data[:20], []byte{105, 0, 0, 0}, data[24:]), 0, errLinkType,
			[]string{"frame 1 at byte 24", "unknown link type 105", "Ethernet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.pcap")
			must(t, os.WriteFile(path, tt.data, 0o600))
			frames := uint64(0)
			s, err := ReadFile(path, Default(), func(r *flow.Record) { frames += r.Packets })
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) {
				t.Fatalf("error %v, want %v", err, tt.is)
			}
			for _, part := range append(tt.want, path) {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not tell %q", err, part)
				}
			}
			if s.Frames != tt.frames || frames != tt.frames {
				t.Errorf("%d frames read and %d counted, want %d", s.Frames, frames, tt.frames)
			}
		})
	}
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none"), Default(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	for _, link := range []layers.LinkType{layers.LinkTypeEthernet, layers.LinkTypeRaw, layers.LinkTypeLinuxSLL, layers.LinkTypeLinuxSLL2} {
		data, err := os.ReadFile(writeFile(f, mixture()[:20], link))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var frames uint64
		s, err := Read(bytes.NewReader(data), Config{MaxEntries: 100}, func(r *flow.Record) { frames += r.Packets })
		for _, u := range s.Uncounted {
			frames += u.Packets
		}
		if frames != s.Frames {
			t.Errorf("%d frames read, %d counted", s.Frames, frames)
		}
		var bad *capfile.Error
		if err != nil && (!errors.As(err, &bad) || bad.Offset > int64(len(data))) {
			t.Errorf("error without a place in the file: %v", err)
		}
	})
}

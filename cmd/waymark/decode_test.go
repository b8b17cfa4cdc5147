package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/test/golden"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/pdm"

	"github.com/waymark-net/waymark/internal/command"
)

// runDecode runs waymark decode and returns its exit code and what it wrote.
func runDecode(stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(append([]string{"decode"}, args...), stdin, &out, &errs)
	return code, out.String(), errs.String()
}

var captureStart = time.Date(2025, 3, 1, 10, 0, 0, 123456789, time.UTC)

// capture is a pcap file in the making.
type capture struct {
	t   testing.TB
	buf bytes.Buffer
	w   *pcapgo.Writer
}

func newCapture(t testing.TB) *capture {
	t.Helper()
	c := &capture{t: t}
	c.w = pcapgo.NewWriterNanos(&c.buf)
	if err := c.w.WriteFileHeader(65536, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *capture) add(at time.Duration, frame []byte) {
	c.t.Helper()
	info := gopacket.CaptureInfo{Timestamp: captureStart.Add(at), CaptureLength: len(frame), Length: len(frame)}
	if err := c.w.WritePacket(info, frame); err != nil {
		c.t.Fatal(err)
	}
}

// file writes the capture to disk.
func (c *capture) file() string {
	c.t.Helper()
	name := filepath.Join(c.t.TempDir(), "trace.pcap")
	if err := os.WriteFile(name, c.buf.Bytes(), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return name
}

// etherSize is the Ethernet header of the frames built here.
const etherSize = 14

// marked puts an option into an Ethernet frame.
func marked(t testing.TB, b packet.Builder, o pdm.Option) []byte {
	t.Helper()
	frame := b.Bytes()
	ip, err := pdm.Insert(frame[etherSize:], o)
	if err != nil {
		t.Fatal(err)
	}
	return append(frame[:etherSize:etherSize], ip...)
}

// exchange is three questions of a client and their answers, captured halfway:
// 20 ms of network, 50 ms of server. The second answer comes twice, the third
// question lost one before it, and the last answer is a liar's.
func exchange(t *testing.T) *capture {
	t.Helper()
	const ms = uint64(time.Millisecond)
	c := newCapture(t)
	client, server := pdm.State{PSN: 65535}, pdm.State{PSN: 7}
	ask := packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(40000, 4242).Payload(20)
	reply := packet.Eth().IPv6("2001:db8::2", "2001:db8::1").UDP(4242, 40000).Payload(100)
	now := uint64(0)
	for i := range 3 {
		if i == 2 {
			client.Send(now) // lost
			now += 30 * ms
		}
		q := client.Send(now)
		c.add(time.Duration(now+5*ms), marked(t, ask, q))
		server.Receive(q, now+10*ms)
		a := server.Send(now + 60*ms)
		if i == 2 {
			a.DeltaTLR, a.ScaleDTLR = pdm.Scale(uint64(time.Hour))
		}
		answer := marked(t, reply, a)
		c.add(time.Duration(now+65*ms), answer)
		if i == 1 {
			c.add(time.Duration(now+66*ms), answer)
		}
		client.Receive(a, now+70*ms)
		now += 100 * ms
	}
	c.add(time.Second, packet.Eth().IPv6("2001:db8::1", "2001:db8::9").TCP(40001, 443).Bytes())
	v2 := packet.Eth().IPv6("2001:db8::1", "2001:db8::9").DestOpts(packet.Option{Type: 0x0F, Data: make([]byte, 0x12)}).TCP(40002, 443).Bytes()
	c.add(2*time.Second, v2)
	c.add(3*time.Second, packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes())
	return c
}

func TestDecodeGolden(t *testing.T) {
	name := exchange(t).file()
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"decode.txt", nil},
		{"decode_flows.txt", []string{"--show", "flows"}},
		{"decode.json", []string{"-o", "json"}},
		{"decode.jsonl", []string{"-o", "jsonl"}},
		{"decode_packets.csv", []string{"-o", "csv"}},
		{"decode_flows.csv", []string{"-o", "csv", "--show", "flows"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			code, stdout, stderr := runDecode(nil, append(c.args, name)...)
			if code != command.ExitOK || stderr != "" {
				t.Fatalf("exit %d, stderr %q", code, stderr)
			}
			golden.Check(t, filepath.Join("testdata", c.golden), stdout)
		})
	}
}

// What the exchange was made with is what decode tells of it.
func TestDecodeTellsTheTruth(t *testing.T) {
	code, stdout, stderr := runDecode(nil, "-o", "json", exchange(t).file())
	if code != command.ExitOK {
		t.Fatal(stderr)
	}
	var doc struct {
		Packets []map[string]any
		Flows   []map[string]any
		Totals  map[string]float64
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Packets) != 8 || len(doc.Flows) != 1 {
		t.Fatalf("%d packets, %d flows", len(doc.Packets), len(doc.Flows))
	}
	if d := cmp.Diff(map[string]float64{"frames": 10, "unknown_link": 0, "ipv6_packets": 9, "pdm": 7, "pdm_v2": 1, "malformed": 0, "ioam": 0, "ioam_malformed": 0, "flows_dropped": 0, "packets_dropped": 0}, doc.Totals); d != "" {
		t.Error(d)
	}
	f := flatten(doc.Flows[0])
	for name, want := range map[string]float64{
		"pdm.server.p50_ns": 50e6, "pdm.network.p50_ns": 20e6,
		"pdm.to_client.p50_ns": 10e6, "pdm.to_server.p50_ns": 10e6, "pdm.client.p50_ns": 30e6,
	} {
		if got, _ := f[name].(float64); got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
	for name, want := range map[string]float64{
		"pdm.lost": 1, "pdm.back.lost": 0, "pdm.duplicates": 1, "pdm.back.duplicates": 1, "pdm.suspicious": 1, "pdm.back.suspicious": 1,
		"pdm.received": 7, "pdm.back.received": 4, "pdm.server.count": 2,
	} {
		if f[name] != want {
			t.Errorf("%s is %v, want %v", name, f[name], want)
		}
	}
	if f["src"] != "2001:db8::1" || f["dport"] != float64(4242) {
		t.Errorf("who asks: %v", f)
	}
}

func TestDecodeFilter(t *testing.T) {
	c := newCapture(t)
	first := pdm.Option{PSNTP: 1}
	c.add(0, marked(t, packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(1000, 53), first))
	c.add(0, marked(t, packet.Eth().IPv6("2001:db8::2", "2001:db8::1").UDP(53, 1000), first))
	c.add(0, marked(t, packet.Eth().IPv6("2001:db8::1", "2001:db8:1::3").TCP(1000, 443), first))
	c.add(0, marked(t, packet.Eth().IPv6("2001:db8:1::3", "2001:db8:1::4").ICMPv6(128, 0, 443, 1), first))
	name := c.file()
	for _, tc := range []struct {
		args string
		want string // frames
	}{
		{"", "1 2 3 4"},
		{"--host 2001:db8::1", "1 2 3"},
		{"--host 2001:db8::1 --host 2001:db8::2", "1 2"},
		{"--host 2001:db8:1::/48", "3 4"},
		{"--port 443", "3 4"},
		{"--port 1000 --port 53", "1 2"},
		{"--proto tcp", "3"},
		{"--proto 58", "4"},
		{"--proto icmpv6 --port 1", ""},
	} {
		code, stdout, stderr := runDecode(nil, append(strings.Fields(tc.args), "-o", "csv", name)...)
		if code != command.ExitOK {
			t.Errorf("%s: exit %d, %s", tc.args, code, stderr)
			continue
		}
		var frames []string
		for _, row := range readCSV(t, stdout) {
			frames = append(frames, row["frame"])
		}
		if got := strings.Join(frames, " "); got != tc.want {
			t.Errorf("%s: frames %s, want %s", tc.args, got, tc.want)
		}
	}
}

func readCSV(t *testing.T, s string) []map[string]string {
	t.Helper()
	all, err := csv.NewReader(strings.NewReader(s)).ReadAll()
	if err != nil || len(all) == 0 {
		t.Fatalf("%q: %v", s, err)
	}
	var rows []map[string]string
	for _, values := range all[1:] {
		row := map[string]string{}
		for i, v := range values {
			row[all[0][i]] = v
		}
		rows = append(rows, row)
	}
	return rows
}

func TestDecodeBadInput(t *testing.T) {
	good := exchange(t)
	name := good.file()
	whole := good.buf.Bytes()
	write := func(b []byte) string {
		name := filepath.Join(t.TempDir(), "bad")
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	// The first record begins behind the file header of 24 bytes.
	lying := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(lying[24+8:], 1<<31)
	for _, c := range []struct {
		name   string
		args   []string
		code   int
		stderr string
		stdout string // a part of it
	}{
		{"no file", nil, command.ExitUsage, "decode: missing argument: waymark decode FILE", ""},
		{"missing", []string{"/nonexistent/trace.pcap"}, command.ExitFailure, "open /nonexistent/trace.pcap: no such file", ""},
		{"empty", []string{write(nil)}, command.ExitFailure, "neither pcap nor pcapng: it is empty", ""},
		{"text", []string{write([]byte("hello, world"))}, command.ExitFailure, "it begins with 68 65 6c 6c; capture with tcpdump -w", ""},
		{"short header", []string{write(whole[:10])}, command.ExitFailure, "byte 0: unexpected EOF", ""},
		{"cut in the first record header", []string{write(whole[:30])}, command.ExitFailure, "frame 1 at byte 24: unexpected EOF: the file is truncated", ""},
		{"cut behind a record header", []string{write(whole[:40])}, command.ExitFailure, "frame 1 at byte 24: unexpected EOF: the file is truncated", ""},
		{"cut in the last frame", []string{write(whole[:len(whole)-1])}, command.ExitFailure, "frame 10 at byte", "7 with PDM"},
		{"impossible length", []string{write(lying)}, command.ExitFailure, "frame 1 at byte 24: 2147483648 bytes were captured", ""},
		{"damaged gzip", []string{write([]byte{0x1F, 0x8B, 9, 9})}, command.ExitFailure, "byte 0", ""},
		{"format", []string{"-o", "xml", name}, command.ExitUsage, "one of table, json, jsonl, csv", ""},
		{"show", []string{"--show", "bytes", name}, command.ExitUsage, "--show bytes: want packets, ioam or flows", ""},
		{"two tables in one", []string{"-o", "csv", "--show", "packets,flows", name}, command.ExitUsage, "--show packets, --show ioam or --show flows", ""},
		{"host", []string{"--host", "example", name}, command.ExitUsage, "--host example: want an IPv6 address or prefix", ""},
		{"prefix", []string{"--host", "2001:db8::/129", name}, command.ExitUsage, "--host 2001:db8::/129", ""},
		{"IPv4 host", []string{"--host", "192.0.2.1", name}, command.ExitUsage, "PDM and IOAM are options of IPv6", ""},
		{"time format", []string{"--ioam-time", "unix", name}, command.ExitUsage, "--ioam-time unix: want ptp, ntp or posix", ""},
		{"port", []string{"--port", "65536", name}, command.ExitUsage, "--port 65536: want a number up to 65535", ""},
		{"proto", []string{"--proto", "quic", name}, command.ExitUsage, "--proto quic: want tcp", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runDecode(nil, c.args...)
			if code != c.code || !strings.Contains(stderr, c.stderr) || !strings.Contains(stdout, c.stdout) {
				t.Errorf("exit %d, want %d\nstderr %q, want %q in it\nstdout %q, want %q in it", code, c.code, stderr, c.stderr, stdout, c.stdout)
			}
		})
	}
}

func TestDecodeStdinAndGzip(t *testing.T) {
	whole := exchange(t).buf.Bytes()
	_, want, _ := runDecode(bytes.NewReader(whole), "-")
	if !strings.Contains(want, "7 with PDM") {
		t.Fatalf("from stdin: %s", want)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(whole); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if code, got, stderr := runDecode(&packed, "-"); code != command.ExitOK || got != want {
		t.Errorf("packed: exit %d, %s, %s", code, got, stderr)
	}
}

// A capture that goes on is decoded as it comes.
func TestDecodeFollows(t *testing.T) {
	whole := exchange(t).buf.Bytes()
	for _, format := range []string{outputTable, outputJSONL} {
		in, feed := io.Pipe()
		out, sink := io.Pipe()
		done := make(chan int)
		go func() {
			code := execute([]string{"decode", "-o", format, "-"}, in, sink, io.Discard)
			sink.Close()
			done <- code
		}()
		first := 24 + 16 + int(binary.LittleEndian.Uint32(whole[24+8:]))
		go feed.Write(whole[:first])
		got := make([]byte, 4096)
		if n, err := out.Read(got); err != nil || n == 0 {
			t.Errorf("%s: after one packet: %d bytes, %v", format, n, err)
		}
		go func() {
			feed.Write(whole[first:])
			feed.Close()
		}()
		if rest, err := io.ReadAll(out); err != nil || len(rest) == 0 {
			t.Errorf("%s: the rest: %q, %v", format, rest, err)
		}
		if code := <-done; code != command.ExitOK {
			t.Errorf("%s: exit %d", format, code)
		}
	}
}

// tshark, which knows nothing of us, reads the same six fields from every packet
// that wire/pdm marked, and has nothing to complain about.
func TestDecodeAgreesWithTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skipf("needs tshark: %v", err)
	}
	c := newCapture(t)
	var frames int
	for i := range uint32(60) {
		for _, b := range tsharkShapes(i) {
			o := pdm.Option{PSNTP: uint16(frames * 7919), PSNLR: uint16(frames * 104729)}
			o.DeltaTLR, o.ScaleDTLR = pdm.Scale(uint64(frames) << (frames % 50))
			o.DeltaTLS, o.ScaleDTLS = pdm.Scale(uint64(frames*frames) << (frames % 30))
			if frames%10 == 0 {
				o.ScaleDTLR, o.ScaleDTLS = uint8(frames), 255-uint8(frames)
			}
			c.add(time.Duration(frames)*time.Millisecond, marked(t, b, o))
			frames++
		}
	}
	name := c.file()
	fields := []string{
		"ipv6.opt.pdm.psn_this_pkt", "ipv6.opt.pdm.psn_last_recv", "ipv6.opt.pdm.delta_last_recv",
		"ipv6.opt.pdm.delta_last_sent", "ipv6.opt.pdm.scale_dtlr", "ipv6.opt.pdm.scale_dtls",
	}
	ours := []string{"psntp", "psnlr", "delta_tlr", "delta_tls", "scale_dtlr", "scale_dtls"}
	args := []string{"-r", name, "-T", "fields", "-o", "tcp.analyze_sequence_numbers:FALSE", "-e", "frame.number", "-e", "_ws.expert.message"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(tshark, args...)
	cmd.Stderr = &stderr
	judged, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, stderr.String())
	}
	code, stdout, errs := runDecode(nil, "-o", "csv", name)
	if code != command.ExitOK {
		t.Fatal(errs)
	}
	rows := readCSV(t, stdout)
	lines := strings.Split(strings.TrimSuffix(string(judged), "\n"), "\n")
	if len(rows) != frames || len(lines) != frames {
		t.Fatalf("%d packets marked, %d decoded, %d judged", frames, len(rows), len(lines))
	}
	for i, line := range lines {
		values := strings.Split(line, "\t")
		if values[0] != rows[i]["frame"] || values[1] != "" {
			t.Errorf("frame %s: tshark says %q of frame %s", rows[i]["frame"], values[1], values[0])
		}
		for j, name := range ours {
			theirs, err := strconv.ParseUint(values[j+2], 0, 16)
			if err != nil || fmt.Sprint(theirs) != rows[i][name] {
				t.Errorf("frame %s: %s is %s, and tshark reads %s", rows[i]["frame"], name, rows[i][name], values[j+2])
			}
		}
	}
}

// tsharkShapes are packets with every arrangement of headers that can be marked.
// Their transport numbers come from n: to tshark a number twice is worth a word.
func tsharkShapes(n uint32) []packet.Builder {
	ip := packet.Eth().IPv6("2001:db8::1", "2001:db8::2")
	limit := packet.Option{Type: 0x04, Data: []byte{4}} // tunnel encapsulation limit
	return []packet.Builder{
		ip.UDP(40000, 40001).Payload(64),
		ip.TCP(40000, 40001).Payload(1000),
		ip.ICMPv6(128, 0, 7, uint16(n)).Payload(56),
		ip.SCTP(40000, 40001, 1).Data(n, 20),
		ip.HopByHop().UDP(40000, 40001).Payload(64),
		ip.DestOpts(limit).UDP(40000, 40001).Payload(64),
		ip.HopByHop().DestOpts(limit).TCP(40000, 40001).Payload(64),
		ip.DestOpts(limit).Routing("2001:db8::3").UDP(40000, 40001).Payload(64),
		ip.Routing("2001:db8::3").DestOpts(limit).UDP(40000, 40001).Payload(64),
		packet.Eth().IPv6("2001:db8::1", "2001:db8::2").IPv6("2001:db8:1::1", "2001:db8:1::2").UDP(40000, 40001).Payload(64),
	}
}

package packet

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/waymark-net/waymark/internal/flow"
)

// blamed are cases whose packets tshark warns of, as it should.
var blamed = map[string]string{
	"ipv4/wrong checksum":   "meant to be wrong",
	"ipv6/jumbogram":        "so short that it need not be one (RFC 2675, 3)",
	"ipv6/payload length 0": "bytes behind the packet",
	"udp/length 0":          "meant to be wrong",
	"udp/length too great":  "meant to be wrong",
	"icmp/four bytes":       "an ICMP header has eight",
	"tcp/all twelve flags":  "a reset is worth a warning",
	"tcp/ipv6":              "a reset is worth a warning",
	"fragment/ipv4":         "a UDP length beyond the fragment",
	"ipip/outer fragments":  "half an inner packet",
	"ipip/inner fragments":  "a UDP length beyond the fragment",
	"chain/hip":             "tshark's checksum covers what follows the HIP header",
	"fragment/ipv6":         "a UDP length beyond the fragment",
}

// unseen are cases whose flow tshark shows nowhere.
var unseen = map[string]string{
	"ipip/twice":       "neither the outermost nor the innermost packet",
	"gre/vxlan inside": "neither the outermost nor the innermost packet",
	"chain/hip":        "it takes what follows for HIP",
	"chain/mobility":   "it takes what follows for Mobility",
	"icmp/four bytes":  "it wants eight",
	"ipv6/jumbogram":   "it wants a jumbogram to be long",
}

const severityWarn = 0x00600000 // tshark's PI_WARN; only PI_ERROR is above

var fields = []string{
	"_ws.expert.severity", "_ws.expert.message", "_ws.malformed",
	"vlan.id", "ieee8021ad.id", "ip.src", "ip.dst", "ip.len", "ip.dsfield", "ip.ttl",
	"ipv6.src", "ipv6.dst", "ipv6.plen", "ipv6.tclass", "ipv6.hlim", "ipv6.flow",
	"tcp.srcport", "tcp.dstport", "tcp.flags", "tcp.len",
	"udp.srcport", "udp.dstport", "sctp.srcport", "sctp.dstport", "dccp.srcport", "dccp.dstport",
	"icmp.type", "icmp.code", "icmp.ident", "icmpv6.type", "icmpv6.code", "icmpv6.echo.identifier",
}

// judgement is what tshark found in a frame: by field name, all values.
type judgement map[string][]string

// tshark, which knows nothing of us, finds in every packet what the table says
// is in it, and nothing to complain about.
func TestTsharkAgrees(t *testing.T) {
	var cases []Case
	var data [][]byte
	for _, c := range Cases() {
		if len(c.Flows) == 0 || strings.HasPrefix(c.Name, "opaque/") || strings.HasPrefix(c.Name, "gso/") || c.Frames[0].L3 {
			continue
		}
		for _, f := range c.Frames {
			cases = append(cases, c)
			data = append(data, f.Data)
		}
	}
	for i, j := range tshark(t, data) {
		c := cases[i]
		if _, ok := blamed[c.Name]; !ok {
			j.checkClean(t, c.Name)
		}
		if len(c.Frames) == 1 && unseen[c.Name] == "" {
			j.checkFlow(t, c, c.Flows[0])
		}
	}
}

func (j judgement) checkClean(t *testing.T, name string) {
	t.Helper()
	for i, s := range j["_ws.expert.severity"] {
		if n, err := strconv.Atoi(s); err != nil || n >= severityWarn {
			t.Errorf("%s: tshark warns: %s", name, j["_ws.expert.message"][i])
		}
	}
	if len(j["_ws.malformed"]) > 0 {
		t.Errorf("%s: tshark calls it malformed", name)
	}
}

func (j judgement) checkFlow(t *testing.T, c Case, want flow.Delta) {
	t.Helper()
	get := func(field string) string {
		v := j[field]
		switch {
		case len(v) == 0:
			return ""
		case want.Tunnel == flow.TunnelNone:
			return v[0]
		default:
			return v[len(v)-1]
		}
	}
	check := func(field, want string) {
		t.Helper()
		if got := get(field); got != want {
			t.Errorf("%s: tshark says %s is %q, the table %q", c.Name, field, got, want)
		}
	}
	decimal := func(field string, want uint64) { t.Helper(); check(field, fmt.Sprint(want)) }

	src, dst := netip.AddrFrom16(want.Src), netip.AddrFrom16(want.Dst)
	if want.IPv6 {
		check("ipv6.src", src.String())
		check("ipv6.dst", dst.String())
		decimal("ipv6.hlim", uint64(want.TTLMin))
		check("ipv6.tclass", fmt.Sprintf("0x%08x", want.TOS))
		check("ipv6.flow", fmt.Sprintf("0x%06x", want.FlowLabel))
		decimal("ipv6.plen", want.Bytes-40)
	} else {
		check("ip.src", src.Unmap().String())
		check("ip.dst", dst.Unmap().String())
		decimal("ip.ttl", uint64(want.TTLMin))
		check("ip.dsfield", fmt.Sprintf("0x%02x", want.TOS))
		decimal("ip.len", want.Bytes)
	}
	if c.Frames[0].Tag == nil && want.Tunnel == flow.TunnelNone {
		var tags []string
		for _, id := range []uint16{want.VLAN, want.InnerVLAN} {
			if id != 0 {
				tags = append(tags, fmt.Sprint(id))
			}
		}
		// tshark has a field of its own for service tags, which are outside.
		if got := append(j["ieee8021ad.id"], j["vlan.id"]...); !slices.Equal(got, tags) && c.Name != "link/priority tag" {
			t.Errorf("%s: tshark says VLANs %v, the table %v", c.Name, got, tags)
		}
	}
	if want.Fragments > 0 {
		return // without its first fragment tshark sees no ports either
	}
	switch want.Proto {
	case ProtoTCP:
		decimal("tcp.srcport", uint64(want.SrcPort))
		decimal("tcp.dstport", uint64(want.DstPort))
		check("tcp.flags", fmt.Sprintf("0x%04x", want.TCPFlags))
		decimal("tcp.len", want.PayloadBytes)
	case ProtoUDP, ProtoUDPLite:
		decimal("udp.srcport", uint64(want.SrcPort))
		decimal("udp.dstport", uint64(want.DstPort))
	case ProtoSCTP:
		decimal("sctp.srcport", uint64(want.SrcPort))
		decimal("sctp.dstport", uint64(want.DstPort))
	case ProtoDCCP:
		decimal("dccp.srcport", uint64(want.SrcPort))
		decimal("dccp.dstport", uint64(want.DstPort))
	case ProtoICMP:
		decimal("icmp.type", uint64(want.DstPort>>8))
		decimal("icmp.code", uint64(want.DstPort&0xff))
		if want.SrcPort != 0 {
			decimal("icmp.ident", uint64(want.SrcPort))
		}
	case ProtoICMPv6:
		decimal("icmpv6.type", uint64(want.DstPort>>8))
		decimal("icmpv6.code", uint64(want.DstPort&0xff))
		if want.SrcPort != 0 {
			check("icmpv6.echo.identifier", fmt.Sprintf("0x%04x", want.SrcPort))
		}
	}
}

func tshark(t *testing.T, frames [][]byte) []judgement {
	t.Helper()
	if _, err := exec.LookPath("tshark"); err != nil {
		t.Skip("tshark is not installed: nobody independent can judge the packets")
	}
	args := []string{
		"-n", "-r", writePcap(t, frames), "-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=;",
		"-o", "ip.check_checksum:TRUE", "-o", "tcp.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE",
		"-o", "sctp.checksum:TRUE", "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE",
		"-o", "tcp.analyze_sequence_numbers:FALSE",
	}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, stderr.Bytes())
	}
	var all []judgement
	for line := range strings.Lines(string(out)) {
		j := judgement{}
		for i, v := range strings.Split(strings.TrimSuffix(line, "\n"), "|") {
			if v != "" {
				j[fields[i]] = strings.Split(v, ";")
			}
		}
		all = append(all, j)
	}
	if len(all) != len(frames) {
		t.Fatalf("tshark read %d of %d frames", len(all), len(frames))
	}
	return all
}

func writePcap(t *testing.T, frames [][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "frames.pcap")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i, data := range frames {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(data), Length: len(data)}
		if err := w.WritePacket(ci, data); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

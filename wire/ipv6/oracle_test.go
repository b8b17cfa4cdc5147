package ipv6_test

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/wire/ipv6"
)

// place is a header or an option: where it is in a packet, its number, its size.
type place struct{ at, number, size int }

// headersOf are the extension headers of a packet as Walk finds them, and the options.
func headersOf(t *testing.T, pkt []byte) (headers, options []place) {
	c, err := ipv6.Walk(pkt)
	if err != nil {
		t.Fatalf("%x: %v", pkt, err)
	}
	for _, h := range c.Headers() {
		headers = append(headers, place{h.At, int(h.Proto), h.Size})
		if h.Proto != ipv6.HopByHop && h.Proto != ipv6.Destination {
			continue
		}
		for o, err := range ipv6.Options(pkt[h.At:]) {
			if err != nil {
				t.Fatalf("%x: %v", pkt, err)
			}
			options = append(options, place{h.At + o.At, int(o.Type), 0})
		}
	}
	return headers, options
}

// oracle packets: random chains as they are, and with a random option inserted.
func oraclePackets() (pkts [][]byte) {
	for seed := range 150 {
		pkt := packets().Example(seed)
		pkts = append(pkts, pkt)
		if out, err := ipv6.Insert(pkt, ipv6.Destination, tlvs().Example(seed)); err == nil {
			pkts = append(pkts, out)
		}
		if out, err := ipv6.Insert(pkt, ipv6.HopByHop, tlvs().Example(seed+1000)); err == nil {
			pkts = append(pkts, out)
		}
	}
	return pkts
}

// gopacket finds the same headers, up to a Fragment header, where it ends.
func TestGopacketAgrees(t *testing.T) {
	for _, pkt := range oraclePackets() {
		var got []place
		at := 0
		for _, l := range gopacket.NewPacket(pkt, layers.LayerTypeIPv6, gopacket.Default).Layers() {
			number := map[gopacket.LayerType]int{
				layers.LayerTypeIPv6HopByHop: ipv6.HopByHop, layers.LayerTypeIPv6Routing: ipv6.Routing, layers.LayerTypeIPv6Fragment: ipv6.Fragment,
				layers.LayerTypeIPSecAH: ipv6.Auth, layers.LayerTypeIPv6Destination: ipv6.Destination,
			}
			size := len(l.LayerContents())
			if n, ok := number[l.LayerType()]; ok {
				got = append(got, place{at, n, size})
			}
			at += size
		}
		want, _ := headersOf(t, pkt)
		if i := slices.IndexFunc(want, func(p place) bool { return p.number == ipv6.Fragment }); i >= 0 {
			want = want[:i+1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%x\n gopacket %v\n     Walk %v", pkt, got, want)
		}
	}
}

// element is of tshark's packet details: a protocol or a field.
type element struct {
	Name     string    `xml:"name,attr"`
	At       int       `xml:"pos,attr"`
	Size     int       `xml:"size,attr"`
	Value    string    `xml:"value,attr"`
	Show     string    `xml:"showname,attr"`
	Children []element `xml:",any"`
}

func (e element) walk(visit func(element)) {
	visit(e)
	for _, c := range e.Children {
		c.walk(visit)
	}
}

// tshark finds the same headers and options, and nothing wrong with them.
func TestTsharkAgrees(t *testing.T) {
	pkts := oraclePackets()
	for i, details := range tshark(t, pkts) {
		var headers, options []place
		details.walk(func(e element) {
			number, isHeader := map[string]int{
				"ipv6.hopopts": ipv6.HopByHop, "ipv6.routing": ipv6.Routing, "ipv6.fraghdr": ipv6.Fragment, "ah": ipv6.Auth, "ipv6.dstopts": ipv6.Destination,
			}[e.Name]
			switch {
			case isHeader:
				headers = append(headers, place{e.At, number, e.Size})
			case e.Name == "ipv6.opt.type":
				n, _ := strconv.ParseUint(e.Value, 16, 8)
				options = append(options, place{e.At, int(n), 0})
			case e.Name == "_ws.malformed":
				t.Errorf("%x: %s", pkts[i], e.Show)
			}
		})
		slices.SortFunc(headers, func(a, b place) int { return cmp.Compare(a.at, b.at) })
		wantHeaders, wantOptions := headersOf(t, pkts[i])
		if !slices.Equal(headers, wantHeaders) || !slices.Equal(options, wantOptions) {
			t.Errorf("%x\n tshark %v %v\n   Walk %v %v", pkts[i], headers, options, wantHeaders, wantOptions)
		}
	}
}

func tshark(t *testing.T, pkts [][]byte) []element {
	bin, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("no tshark")
	}
	name := filepath.Join(t.TempDir(), "packets.pcap")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pcapgo.NewWriter(f)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeIPv6); err != nil {
		t.Fatal(err)
	}
	for _, pkt := range pkts {
		if err := w.WritePacket(gopacket.CaptureInfo{CaptureLength: len(pkt), Length: len(pkt)}, pkt); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(bin, "-n", "-r", name, "-T", "pdml").Output()
	if err != nil {
		t.Fatal(fmt.Errorf("tshark: %w", err))
	}
	var details struct {
		Packets []element `xml:"packet"`
	}
	if err := xml.Unmarshal(out, &details); err != nil {
		t.Fatal(err)
	}
	if len(details.Packets) != len(pkts) {
		t.Fatalf("tshark read %d packets of %d", len(details.Packets), len(pkts))
	}
	return details.Packets
}

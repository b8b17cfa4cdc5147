package ipfix

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
)

// traced are a flow whose traces show a path, one whose clocks do not agree, one of which
// only numbers arrive, and the half of the first that is sent.
func traced() []flow.Record {
	of := func(packets uint64, sport uint16, i *flow.IOAM) flow.Record {
		r := judged()[2]
		r.Packets, r.SrcPort, r.Direction, r.IOAM = packets, sport, flow.Ingress, i
		return r
	}
	whole := &flow.IOAM{
		IOAMPath: flow.IOAMPath{ID: 0x0c1b4b1e2f60, Namespace: 123, Hops: 5, Nodes: "1-2-3-4-5"},
		Packets:  200, Changes: 2, Received: 190, Lost: 9, Reordered: 8, Duplicates: 7,
		Delay: flow.Delays{Count: 200, Sum: 4_000_000, Min: 15_000, Max: 90_000},
	}
	relative := &flow.IOAM{IOAMPath: flow.IOAMPath{ID: 1, Hops: 1, Nodes: "7"}, Packets: 201, Relative: true}
	sent := of(203, 1024, nil)
	sent.Direction, sent.Src, sent.Dst, sent.SrcPort, sent.DstPort = flow.Egress, sent.Dst, sent.Src, sent.DstPort, 1024
	return []flow.Record{of(200, 1024, whole), sent, of(201, 1025, relative), of(202, 1026, &flow.IOAM{Received: 200, Lost: 1})}
}

const ioamMust = `direction proto src sport dst dport ioam.path ioam.nodes ioam.namespace ioam.hops ioam.packets ioam.changes ioam.received
	ioam.lost ioam.reordered ioam.duplicates ioam.delay.count ioam.delay.sum_ns ioam.delay.min_ns ioam.delay.max_ns ioam.relative`

// goflow2 reads every element of the object ioam, in a record without packets of its own.
func TestGoflow2IOAM(t *testing.T) {
	o := flow.Origin{Host: "gw"}
	records := traced()
	reports := map[string]said{}
	var packets float64
	for _, v := range goflow2All(t, nil, o, records, len(records)+3) {
		var n float64
		fmt.Sscan(fmt.Sprint(v["packets"]), &n)
		packets += n
		if n > 0 {
			continue
		}
		s, flow := said{}, goflow2Flow(v)
		for _, name := range strings.Fields("direction proto src sport dst dport") {
			s[name] = flow[name]
		}
		for _, o := range goflow2Own {
			if strings.HasPrefix(o.name, "ioam.") {
				s[o.name] = own(v, "x_"+o.name)
			}
		}
		for _, name := range []string{"ioam.path", "ioam.nodes"} { // it shows texts as digits
			text, err := hex.DecodeString(s[name])
			if err != nil && s[name] != "0" {
				t.Error(err)
			}
			s[name] = strings.TrimRight(string(text), "\x00")
		}
		s["ioam.relative"] = map[string]string{"1": "true", "2": "false"}[s["ioam.relative"]]
		reports[s["sport"]] = s
	}
	if packets != 200+201+202+203 {
		t.Errorf("goflow2 counts %.0f packets", packets)
	}
	for _, r := range []flow.Record{records[0], records[2], records[3]} {
		agree(t, o, r, reports[fmt.Sprint(r.SrcPort)], ioamMust)
	}
}

// tshark finds nothing odd in messages with such records, and reads the path.
func TestTsharkIOAM(t *testing.T) {
	records := traced()
	file, decodeAs := sentByUDP(t, records)
	flows, others := tsharkSays(t, file, decodeAs...)
	if len(flows) != len(records)-1 {
		t.Errorf("tshark has %d flows, want %d", len(flows), len(records)-1)
	}
	var text strings.Builder
	for _, n := range others {
		n.walk(func(n *node) { text.WriteString(n.Title + "\n") })
	}
	for _, value := range []string{"0c1b4b1e2f60", "1-2-3-4-5"} {
		if hex := fmt.Sprintf("% x", value); !strings.Contains(text.String(), hex) {
			t.Errorf("no record has %s (%s)", value, hex)
		}
	}
}

// nfdump has no place for these elements, and counts no packet twice.
func TestNfdumpIOAM(t *testing.T) {
	records := traced()
	objects, _ := nfdumpSays(t, nil, records)
	var packets float64
	for _, v := range objects {
		n, _ := v["in_packets"].(float64)
		packets += n
	}
	if packets != 200+201+202+203 {
		t.Errorf("nfdump counts %.0f packets: %v", packets, objects)
	}
}

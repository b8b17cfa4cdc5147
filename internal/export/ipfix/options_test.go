package ipfix

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/pipeline"
)

// exported returns what a collector makes of all messages so far.
func exported(t *testing.T, m *memory) collected {
	t.Helper()
	d := &decoder{}
	records, err := d.stream(&m.Buffer)
	if err != nil {
		t.Fatal(err)
	}
	return collect(records, DocumentationPEN)
}

func mustExport(t *testing.T, e *Exporter, records []flow.Record) {
	t.Helper()
	if n, err := e.Export(context.Background(), records); n != len(records) || err != nil {
		t.Fatalf("exported %d of %d: %v", n, len(records), err)
	}
}

func TestTotalsAndLosses(t *testing.T) {
	e := newExporter(t, nil)
	m := &memory{}
	e.session = m
	mustExport(t, e, numbered(0, 100))
	data := uint64(m.Len())
	e.ReportNotSent(pipeline.NotSent{Records: 7, Packets: 70, Bytes: 700, First: start, Last: start.Add(time.Minute)})
	mustExport(t, e, numbered(100, 100)) // within the interval, but there is news
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	got := exported(t, m)

	lost := got.options[idNotSent]
	for i, want := range [][]uint64{
		{0, 0, 0, 0, 0},
		{7, 70, 700, uint64(start.UnixMilli()), uint64(start.UnixMilli()) + 60_000},
	} {
		v := lost[i]
		values := []uint64{
			number(v["notSentFlowTotalCount"]), number(v["notSentPacketTotalCount"]), number(v["notSentOctetTotalCount"]),
			number(v["flowStartMilliseconds"]), number(v["flowEndMilliseconds"]),
		}
		if !slices.Equal(values, want) || number(v["exportingProcessId"]) != uint64(os.Getpid()) {
			t.Errorf("report %d of losses: %d of process %d, want %d", i, values, number(v["exportingProcessId"]), want)
		}
	}
	sent := got.options[idStatistics]
	last := sent[len(sent)-1]
	if number(last["exportedFlowRecordTotalCount"]) != 200 || number(last["exportedMessageTotalCount"]) != uint64(m.messages)-1 ||
		number(last["exportedOctetTotalCount"]) <= data {
		t.Errorf("last totals: %d flows, %d of %d messages, %d bytes", number(last["exportedFlowRecordTotalCount"]),
			number(last["exportedMessageTotalCount"]), m.messages, number(last["exportedOctetTotalCount"]))
	}
}

func TestSamplingOptions(t *testing.T) {
	e := newExporter(t, nil)
	e.origin.Sampling = 400
	m := &memory{}
	e.session = m
	mustExport(t, e, numbered(0, 1))
	got := exported(t, m)
	standard, older := got.options[idSampling][0], got.options[idSamplingInterval][0]
	if p := math.Float64frombits(number(standard["samplingProbability"])); p != 1./400 || number(standard["selectorAlgorithm"]) != 4 {
		t.Errorf("selector %d with probability %v", number(standard["selectorAlgorithm"]), p)
	}
	if number(older["samplingInterval"]) != 400 || number(older["samplingAlgorithm"]) != 2 {
		t.Errorf("interval %d, algorithm %d", number(older["samplingInterval"]), number(older["samplingAlgorithm"]))
	}

	// Where every packet is counted, the rate is reported, too.
	e = newExporter(t, nil)
	m = &memory{}
	e.session = m
	mustExport(t, e, numbered(0, 1))
	got = exported(t, m)
	standard, older = got.options[idSampling][0], got.options[idSamplingInterval][0]
	if p := math.Float64frombits(number(standard["samplingProbability"])); p != 1 {
		t.Errorf("probability %v without sampling, want 1", p)
	}
	if number(older["samplingInterval"]) != 1 || number(older["samplingAlgorithm"]) != 1 {
		t.Errorf("interval %d, algorithm %d without sampling, want 1 and 1", number(older["samplingInterval"]), number(older["samplingAlgorithm"]))
	}
}

// TestMessagesOfTheirOwn: no message mixes templates, type information and other
// records, at the start and when they are sent again.
func TestMessagesOfTheirOwn(t *testing.T) {
	now := start
	e := newExporter(t, func(c *Config) { c.Biflow = true })
	e.now = func() time.Time { return now }
	m := &memory{}
	e.session = m
	for range 3 {
		mustExport(t, e, judged())
		now = now.Add(e.cfg.TemplateInterval)
	}
	templatesSent := 0
	for b := m.Bytes(); len(b) > 0; b = b[be.Uint16(b[2:]):] {
		kinds := map[kind]bool{}
		for at := headerLen; at < int(be.Uint16(b[2:])); at += int(be.Uint16(b[at+2:])) {
			set, template := be.Uint16(b[at:]), be.Uint16(b[at+setHeaderLen:])
			switch {
			case set == idType, set == setOptionsTemplate && template == idType:
				kinds[kindTypes] = true
			case set < idFlow:
				kinds[kindTemplates] = true
				templatesSent++
			default:
				kinds[kindData] = true
			}
		}
		if len(kinds) != 1 {
			t.Errorf("a message with kinds %v", kinds)
		}
	}
	if templatesSent == 0 {
		t.Error("no templates")
	}
}

// The keys of a template are those fields of which a change makes another flow.
func TestFlowKeys(t *testing.T) {
	e := newExporter(t, func(c *Config) { c.Biflow = true })
	m := &memory{}
	e.session = m
	mustExport(t, e, numbered(0, 1))
	reported := exported(t, m).options[idFlowKeys]
	const (
		marked  = 4  // IPv6, with and without ICMP and extra
		dropped = 12 // one half, marked or not
		others  = 2  // unattributed packets, and what IOAM reported
	)
	if want := variants/4 + marked + dropped + others; len(reported) != want {
		t.Fatalf("keys of %d templates, want %d", len(reported), want)
	}
	for _, v := range reported {
		id, bits := uint16(number(v["templateId"])), number(v["flowKeyIndicator"])
		var names []string
		for i, f := range templates[id].fields {
			if bits&(1<<i) != 0 {
				names = append(names, f.Name)
			}
		}
		keys := strings.Join(names, " ")
		if id == idFlow && keys != "sourceIPv4Address destinationIPv4Address sourceTransportPort destinationTransportPort "+
			"protocolIdentifier ipVersion vlanId ingressInterface egressInterface flowDirection" {
			t.Errorf("keys of template %d: %s", id, keys)
		}
		if strings.Contains(keys, "Count") || strings.Contains(keys, "flowStart") {
			t.Errorf("counters or times are keys of template %d: %s", id, keys)
		}
	}
}

// Interfaces are reported once; again when renamed, and at the interval if in use.
func TestInterfaceNames(t *testing.T) {
	now := start
	e := newExporter(t, nil)
	e.now = func() time.Time { return now }
	m := &memory{}
	e.session = m
	on := func(name, netns string, index uint32) flow.Record {
		r := benchmarkRecord
		r.Iface, r.Netns, r.IfIndex = name, netns, index
		return r
	}
	reported := func(records ...flow.Record) int {
		t.Helper()
		before := strings.Count(m.String(), " on gw")
		mustExport(t, e, records)
		return strings.Count(m.String(), " on gw") - before
	}
	if n := reported(on("eth0", "", 2), on("eth1", "", 3), on("eth0", "", 2), on("eth0", "blue", 2)); n != 3 {
		t.Errorf("%d interfaces reported, want 3", n)
	}
	if n := reported(on("eth1", "", 3), on("eth0", "blue", 2)); n != 0 {
		t.Errorf("%d interfaces reported again", n)
	}
	if n := reported(on("lan0", "", 3)); n != 1 {
		t.Errorf("a renamed interface is reported %d times", n)
	}
	now = now.Add(time.Minute)
	if n := reported(); n != 3 {
		t.Errorf("%d interfaces reported at the interval, want 3", n)
	}
	reported(on("lan0", "", 3))
	now = now.Add(time.Minute)
	if n := reported(on("eth0", "", 2)); n != 2 {
		t.Errorf("%d interfaces reported, want the one that was in use and the one that is again", n)
	}
	if got := exported(t, m); got.flows[3].Netns != "blue" || got.flows[3].IfIndex != 2 || got.flows[len(got.flows)-1].Iface != "eth0" {
		t.Errorf("decoded: %+v", got.flows)
	}
}

// Names of any length and any bytes leave options whole.
func TestLongNames(t *testing.T) {
	e := newExporter(t, func(c *Config) { c.MTU = minMTU })
	e.origin.Host = strings.Repeat("ü", 200)
	m := &memory{}
	e.session = m
	r := benchmarkRecord
	r.Iface, r.Netns = "abcdefghijklmno", strings.Repeat("é", 127)
	mustExport(t, e, []flow.Record{r})
	got := exported(t, m)
	if got.host != strings.Repeat("ü", 127) || got.flows[0].Iface != r.Iface || got.flows[0].Netns != strings.Repeat("é", 31) || m.largest > minMTU {
		t.Errorf("host %q, record %+v, largest message %d", got.host, got.flows[0], m.largest)
	}
}

// The table of fields and the table of elements belong together.
func TestElementsOfFields(t *testing.T) {
	inUse := map[string]bool{}
	for _, tmpl := range templates {
		for _, f := range tmpl.fields {
			inUse[f.Name] = true
		}
	}
	for i := range flow.Fields {
		for _, e := range flow.Fields[i].IPFIX {
			if !inUse[e.Name] {
				t.Errorf("field %s names element %s, which no template has", flow.Fields[i].Name, e.Name)
			}
		}
	}
	seen := map[[2]any]bool{}
	for _, e := range Elements() {
		if !inUse[e.Name] {
			t.Errorf("element %s is in no template", e.Name)
		}
		if id := [2]any{e.Own, e.ID}; seen[id] {
			t.Errorf("element %s has the number of another", e.Name)
		} else {
			seen[id] = true
		}
		if e.Doc == "" || e.Own && (dataTypes[e.Type] == 0 || strings.HasPrefix(e.Semantics, "?")) {
			t.Errorf("element %s is not described", e.Name)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	e, err := New(Default(), origin, func() time.Time { return start })
	if err != nil {
		f.Fatal(err)
	}
	m := &memory{}
	e.session = m
	if _, err := e.Export(context.Background(), judged()); err != nil {
		f.Fatal(err)
	}
	for b := m.Bytes(); len(b) > 0; b = b[be.Uint16(b[2:]):] {
		f.Add(slices.Clone(b[:be.Uint16(b[2:])]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &decoder{}
		records, err := d.message(b)
		if err != nil {
			return
		}
		for i := range records {
			if len(records[i].values) != len(records[i].elements) {
				t.Errorf("record %d has %d values of %d elements", i, len(records[i].values), len(records[i].elements))
			}
		}
		collect(records, DocumentationPEN)
	})
}

// TestInterfaceNumbersDiffer: whatever index an interface has and however many
// namespaces there are, no two have one number.
func TestInterfaceNumbersDiffer(t *testing.T) {
	is := newInterfaces()
	seen := map[uint32]string{}
	for n := range 1100 {
		netns := ""
		if n > 0 {
			netns = fmt.Sprint("ns", n)
		}
		for _, index := range []uint32{2, 1<<22 - 1, 1<<22 + 2, 1 << 31, math.MaxUint32} {
			r := flow.Record{Netns: netns, IfIndex: index, Iface: "eth0"}
			i, _ := is.of(&r)
			name := fmt.Sprintf("%s/%d", netns, index)
			if other, taken := seen[i.id]; taken {
				t.Fatalf("%s and %s are both %d", name, other, i.id)
			}
			seen[i.id] = name
			if n == 0 && i.id != index || n > 0 && n < 1000 && index < 1<<22 && index > 2 && i.id != uint32(n)<<22|index {
				t.Errorf("%s is %d", name, i.id)
			}
			if r.Iface = "renamed"; is.mustBe(&r) != i.id {
				t.Errorf("%s has another number with another name", name)
			}
		}
	}
}

func (is *interfaces) mustBe(r *flow.Record) uint32 {
	i, _ := is.of(r)
	return i.id
}

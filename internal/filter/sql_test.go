package filter

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
)

// literal is a value in SQL.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return "CAST(x'" + hex.EncodeToString([]byte(v)) + "' AS TEXT)"
	case []byte:
		return "x'" + hex.EncodeToString(v) + "'"
	}
	return fmt.Sprint(v)
}

// sqlValue is a field of a record as a column has it.
func sqlValue(f *flow.Field, r *flow.Record) any {
	switch {
	case f.Missing != nil && f.Missing(r):
		return nil
	case f.Str != nil:
		return f.Str(r)
	case f.Kind == flow.Name:
		return f.Values[f.Uint(r)]
	case f.Addr != nil:
		a := f.Addr(r).As16()
		return a[:]
	case f.Kind == flow.Signed:
		return int64(f.Uint(r))
	}
	return f.Uint(r)
}

// selected are the indexes of the records that SQLite finds by each filter.
func selected(t *rapid.T, records []flow.Record, filters []Filter) []string {
	var columns []*flow.Field
	for i := range flow.Fields {
		if f := &flow.Fields[i]; f.Uint != nil || f.Str != nil || f.Addr != nil {
			columns = append(columns, f)
		}
	}
	var script strings.Builder
	script.WriteString(".parameter init\nCREATE TABLE flows (id")
	for _, f := range columns {
		fmt.Fprintf(&script, ", %q", f.Name)
	}
	script.WriteString(");\n")
	for i := range records {
		fmt.Fprintf(&script, "INSERT INTO flows VALUES (%d", i)
		for _, f := range columns {
			script.WriteString(", " + literal(sqlValue(f, &records[i])))
		}
		script.WriteString(");\n")
	}
	for _, f := range filters {
		q := f.SQL(SQLite)
		script.WriteString("DELETE FROM temp.sqlite_parameters;\n")
		for i, v := range q.Args {
			fmt.Fprintf(&script, "INSERT INTO temp.sqlite_parameters VALUES ('?%d', %s);\n", i+1, literal(v))
		}
		fmt.Fprintf(&script, "SELECT 'rows: ' || ifnull(group_concat(id), '') FROM (SELECT id FROM flows WHERE %s ORDER BY id);\n", q.Where)
	}
	cmd := exec.Command("sqlite3", "-batch", "-bail")
	cmd.Stdin = strings.NewReader(script.String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sqlite3: %v: %s", err, stderr.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// few draws a number of which others are likely to be the same, or next to it.
func few[T uint8 | uint16 | uint32 | uint64](t *rapid.T) T {
	return rapid.SampledFrom([]T{0, 1, 2, 3, 6, 17, 58, 80, 255}).Draw(t, "n")
}

var fewTexts = []string{"", "eth0", "eth1", "veth12", "a/b", "ü", "x]", "x-1", "^"}

func drawSimilar(t *rapid.T) flow.Record {
	address := func() netip.Addr { return netip.AddrFrom4([4]byte{10, few[uint8](t), 0, few[uint8](t)}) }
	r := flow.Record{
		Iface: rapid.SampledFrom(fewTexts).Draw(t, "iface"), Netns: rapid.SampledFrom(fewTexts).Draw(t, "netns"),
		Direction: flow.Direction(few[uint8](t) % 2), Family: 4, Src: address(), Dst: address(),
		Proto: few[uint8](t), SrcPort: few[uint16](t), DstPort: few[uint16](t) << 8, VLAN: few[uint16](t),
		InnerVLAN: few[uint16](t), Tunnel: flow.Tunnel(few[uint8](t) % 5), VNI: few[uint32](t), TOS: few[uint8](t), TCPFlags: few[uint16](t),
		FlowLabel: few[uint32](t), TTLMin: few[uint8](t), TTLMax: few[uint8](t), EndReason: flow.EndReason(few[uint8](t) % 6),
		Counters: flow.Counters{
			Packets: few[uint64](t), Bytes: few[uint64](t), PayloadBytes: few[uint64](t), WireBytes: few[uint64](t),
			Fragments: few[uint64](t), CEPackets: few[uint64](t),
		},
		Initiator: flow.Initiator(few[uint8](t) % 3), InitiatorBy: flow.Evidence(few[uint8](t) % 5),
		RTT: flow.RTT{Responder: time.Duration(few[uint8](t)), Initiator: time.Duration(few[uint8](t))},
	}
	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0:
		r.Family, r.Src, r.Dst = 6, netip.AddrFrom16(r.Src.As16()), netip.AddrFrom16(r.Dst.As16())
	case 1:
		r.Unattributed, r.Src, r.Dst = true, netip.Addr{}, netip.Addr{}
	}
	if rapid.Bool().Draw(t, "marked") {
		var h inband.Histogram
		for range rapid.IntRange(0, 2).Draw(t, "delays") {
			h.Add(uint64(few[uint8](t)))
		}
		r.PDM = &flow.PDM{
			Sent: few[uint64](t), Received: few[uint64](t), Lost: int64(few[uint8](t)) - 2,
			Reordered: few[uint64](t), Duplicates: few[uint64](t), Server: flow.DelaysOf(&h),
		}
	}
	return r
}

// drawSimilarTest is a test with values that records have, or nearly.
func drawSimilarTest(t *rapid.T, records []flow.Record) node {
	drawn := drawTest(t).(test)
	r := &records[rapid.IntRange(0, len(records)-1).Draw(t, "record")]
	for i := range drawn.values {
		v := &drawn.values[i]
		switch drawn.field.kind {
		case kindText:
			v.text = rapid.SampledFrom([]string{drawn.field.text(r), "eth?", "*eth*", "[a-e]th[^0]", "?", `x\]`, `x[\]\-]*`, "[^x]", `\^`, "*"}).Draw(t, "text")
			if !strings.ContainsAny(v.text, `*?[\`) {
				continue
			}
		case kindAddress:
			if a, _ := drawn.field.addresses(r); a.IsValid() {
				v.prefix, _ = a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
			}
		case kindFlag, kindName:
		default:
			a, _, _ := drawn.field.numbers(r)
			v.low = min(a, drawn.field.max)
			v.high = v.low
			if drawn.op == "=" || drawn.op == "!=" {
				v.high = min(v.low+uint64(rapid.IntRange(0, 3).Draw(t, "more")), drawn.field.max)
			}
			if drawn.field.kind == kindBits {
				v.high = v.low
			}
		}
	}
	return drawn
}

func drawSimilarNode(t *rapid.T, records []flow.Record, depth int) node {
	kind := rapid.IntRange(0, 5).Draw(t, "node")
	if depth == 0 || kind > 2 {
		return drawSimilarTest(t, records)
	}
	if kind == 2 {
		return not{drawSimilarNode(t, records, depth-1)}
	}
	list := make([]node, rapid.IntRange(2, 3).Draw(t, "operands"))
	for i := range list {
		list[i] = drawSimilarNode(t, records, depth-1)
	}
	if kind == 1 {
		return or(list)
	}
	return and(list)
}

// TestTreeAsSQL translates filters to SQL, and finds the same records by it.
func TestTreeAsSQL(t *testing.T) {
	if _, err := exec.LookPath("sqlite3"); err != nil {
		t.Skip("sqlite3 is not installed")
	}
	ops := map[Op]int{}
	var seen func(Node)
	seen = func(n Node) {
		switch n := n.(type) {
		case Or:
			for _, part := range n {
				seen(part)
			}
		case And:
			for _, part := range n {
				seen(part)
			}
		case Not:
			seen(n.Node)
		case Test:
			ops[n.Op]++
		}
	}
	found, tests := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		records := make([]flow.Record, 6)
		for i := range records {
			records[i] = drawSimilar(t)
		}
		filters := make([]Filter, 20)
		for i := range filters {
			filters[i] = Filter{drawSimilarNode(t, records, 2)}
			seen(filters[i].Tree())
		}
		for i, got := range selected(t, records, filters) {
			var want []string
			for n := range records {
				matches := filters[i].Match(&records[n])
				if Compile(filters[i], Records())(&records[n]) != matches {
					t.Fatalf("%s: matches %t, and not so by its tree", filters[i], matches)
				}
				if matches {
					want = append(want, fmt.Sprint(n))
				}
			}
			found += len(want)
			tests += len(records)
			if got != "rows: "+strings.Join(want, ",") {
				t.Fatalf("%s\nmatches %v, SQL finds %s\n%v", filters[i], want, got, filters[i].SQL(SQLite))
			}
		}
	})
	for op := OpEqual; op <= OpPresent; op++ {
		if ops[op] == 0 {
			t.Errorf("no filter had operator %d", op)
		}
	}
	if found < tests/10 || found > tests*9/10 {
		t.Errorf("%d of %d records match: this tests little", found, tests)
	}
}

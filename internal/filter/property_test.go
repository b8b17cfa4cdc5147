package filter

import (
	"net/netip"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// drawNode makes an expression of the form that the parser makes.
func drawNode(t *rapid.T, depth int) node {
	kind := rapid.IntRange(0, 5).Draw(t, "node")
	if depth == 0 {
		kind = 5
	}
	switch kind {
	case 0, 1:
		list := make([]node, rapid.IntRange(2, 4).Draw(t, "operands"))
		for i := range list {
			list[i] = drawNode(t, depth-1)
		}
		if kind == 0 {
			return or(list)
		}
		return and(list)
	case 2:
		return not{drawNode(t, depth-1)}
	}
	return drawTest(t)
}

func drawTest(t *rapid.T) node {
	// The kind first: of many fields, rapid hardly ever draws the only one of its kind.
	f := rapid.SampledFrom(rapid.SampledFrom(fieldsByKind()).Draw(t, "kind")).Draw(t, "field")
	n := test{field: f, op: "="}
	if f.kind == kindFlag {
		return n
	}
	ops := []string{"=", "!="}
	if f.kind.ordered() {
		ops = append(ops, "<", "<=", ">", ">=")
	}
	n.op = rapid.SampledFrom(ops).Draw(t, "op")
	count := 1
	if n.op == "=" || n.op == "!=" {
		count = rapid.IntRange(1, 3).Draw(t, "values")
	}
	for range count {
		v := drawValue(t, f)
		if n.op != "=" && n.op != "!=" {
			v.high = v.low
		}
		n.values = append(n.values, v)
	}
	return n
}

func fieldsByKind() [][]*field {
	kinds := make([][]*field, kindFlag+1)
	for i := range fields {
		kinds[fields[i].kind] = append(kinds[fields[i].kind], &fields[i])
	}
	return kinds
}

func drawValue(t *rapid.T, f *field) value {
	switch f.kind {
	case kindText:
		return value{text: rapid.OneOf(rapid.SampledFrom([]string{"", "and", "or", "not", "veth*", "a b", `q"`, "(", "tcp", "ü", "1-2"}), rapid.StringMatching(`[!-~]*`), rapid.String()).
			Filter(func(s string) bool { _, err := f.parse(s); return err == nil }).Draw(t, "text")}
	case kindAddress:
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "address")
		a, _ := netip.AddrFromSlice(b)
		if rapid.Bool().Draw(t, "v4") || a.Is4In6() {
			a, _ = netip.AddrFromSlice(b[:4])
		}
		p, err := a.Prefix(rapid.IntRange(0, a.BitLen()).Draw(t, "bits"))
		if err != nil || p.Addr().Is4In6() {
			p = netip.MustParsePrefix("::/0")
		}
		return value{prefix: p}
	case kindName:
		v, err := f.parse(rapid.SampledFrom(f.names).Filter(func(s string) bool { _, err := f.parse(s); return err == nil }).Draw(t, "name"))
		if err != nil {
			t.Fatal(err)
		}
		return v
	case kindBits:
		n := rapid.Uint64Range(0, 1<<16-1).Draw(t, "bits")
		return value{low: n, high: n}
	}
	low := rapid.Uint64Range(0, f.max).Draw(t, "low")
	high := low
	if rapid.Bool().Draw(t, "range") {
		high = rapid.Uint64Range(low, f.max).Draw(t, "high")
	}
	return value{low: low, high: high}
}

func TestParseOfPrintIsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Filter{drawNode(t, 3)}
		text := want.String()
		if len(text) > MaxText {
			t.Skip("too long")
		}
		got, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(flatten(want.root), flatten(got.root)) {
			t.Fatalf("%s\nwas read as\n%s", text, got)
		}
	})
}

// flatten replaces fields, which hold functions, by their names.
func flatten(n node) any {
	list := func(name string, nodes []node) any {
		out := []any{name}
		for _, n := range nodes {
			out = append(out, flatten(n))
		}
		return out
	}
	switch n := n.(type) {
	case or:
		return list("or", n)
	case and:
		return list("and", n)
	case not:
		return []any{"not", flatten(n.node)}
	case test:
		return []any{n.field.name, n.op, n.values}
	}
	return nil
}

// What Parse accepts, it prints so that it reads the same again; it never
// panics, nor does matching.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "tcp", "proto tcp and dport 80,443,8000-8099", "not (src 2001:db8::/32 or iface \"a b\")",
		"rtt > 10ms and bytes >= 10Ki", "flags syn+ack", "unattributed", "! tcp || (((udp)))", "a=b", "\"", "dport 1-", "\xff",
		"tcp dst port 443 or 8080", "src and dst net 10/8", "port in [80, {1 2}]", "iface in [eth[01]]", "tcp.flags.syn == 0", "host (10.0.0.1 and ::1)",
		"ip.addr == web or web", "port https,ms-sql-s", "bytes > 1.5MiB", "rtt 1d-2w", "net 10", "vlan and ip 10.0.0.1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := ParseNames(text, names)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error that says nothing")
			}
			return
		}
		printed := parsed.String()
		if len(printed) > MaxText {
			return
		}
		again, err := Parse(printed)
		if err != nil {
			t.Fatalf("%q was printed as %q: %v", text, printed, err)
		}
		if again.String() != printed {
			t.Errorf("%q was printed as %q, then as %q", text, printed, again.String())
		}
		a, b, c := web(), ping(), lost()
		if parsed.Match(&a) != again.Match(&a) || parsed.Match(&b) != again.Match(&b) || parsed.Match(&c) != again.Match(&c) {
			t.Errorf("%q and %q match different records", text, printed)
		}
	})
}

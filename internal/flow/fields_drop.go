package flow

import "cmp"

// inDrops is the object of flows of which the gate dropped packets.
var inDrops = object[Drop]{name: "drops", element: "waymarkDrop", at: func(r *Record) **Drop { return &r.Drop }}

// dropCounterFields are sums; the packets are among those that `packets` counts.
var dropCounterFields = []Field{
	absentZero(counter(Field{
		Name: "drops.packets", Unit: "packets", Aliases: []string{"drops", "dropped"}, Doc: "packets, among `packets`, that rules of the gate dropped; absent: none",
		Example: "drops > 0",
		IPFIX:   []Element{IANA(133, "droppedPacketDeltaCount", "unsigned64", "deltaCounter", "packets, among packetDeltaCount, that rules of the gate dropped")},
	}, func(c *Counters) *uint64 { return &c.Dropped })),
	absentZero(counter(Field{
		Name: "drops.bytes", Unit: "bytes", Aliases: []string{"dropped_bytes"}, Doc: "IP bytes, among `bytes`, of packets that rules of the gate dropped; absent: none",
		IPFIX: []Element{IANA(132, "droppedOctetDeltaCount", "unsigned64", "deltaCounter", "IP bytes, among octetDeltaCount, of packets that rules of the gate dropped")},
	}, func(c *Counters) *uint64 { return &c.DroppedBytes })),
}

// dropFields say which rule it was.
var dropFields = []Field{
	ofDrop(46, "Verdict", "unsigned8", Field{
		Name: "verdict", Kind: Name, Merge: MergeAgree, Values: verdictNames[:], Aliases: []string{"drop_verdict"}, Example: "drop_verdict limit",
		Doc: "how the rule came to drop them: drop matches, limit is a rate that was exceeded, syncookie is no connection and no cookie, ban is a banned source; several: rules of several kinds",
	}, func(d *Drop) uint64 { return uint64(d.Verdict) }, func(d *Drop, n uint64) { d.Verdict = Verdict(n) }),
	ruleField(),
	dropText(),
}

// ruleField is the one that combines all of them.
func ruleField() Field {
	f := ofDrop(47, "Rule", "unsigned32", Field{
		Name: "rule", Kind: Number, Merge: MergeAgree, Max: maxUint32, Aliases: []string{"drop_rule"},
		Doc: "id of the rule, as `waymark rules list` shows it; absent: several rules did",
	}, func(d *Drop) uint64 { return uint64(d.Rule) }, func(d *Drop, n uint64) { d.Rule = uint32(n) })
	f.Combine = func(to, from *Record) { to.Drop = to.Drop.and(from.Drop) }
	return missing(f, func(r *Record) bool { return r.Drop == nil || r.Drop.Rule == 0 })
}

// ofDrop is a number or one of the names.
func ofDrop(id uint16, element, dataType string, f Field, of func(*Drop) uint64, set func(*Drop, uint64)) Field {
	f = inDrops.field(id, element, dataType, "identifier", f)
	f.Uint = func(r *Record) uint64 {
		if r.Drop == nil {
			return 0
		}
		return of(r.Drop)
	}
	f.AppendKey = func(b []byte, r *Record) []byte { return appendUint(append(b, 'r'), f.Uint(r)) }
	f.Compare = func(a, b *Record) int { return cmp.Compare(f.Uint(a), f.Uint(b)) }
	f.Copy = func(to, from *Record) { to.Drop = from.Drop }
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, f.Uint(r)) }
	f.Set = func(s string, _ *Origin, r *Record) error {
		var n uint32
		err := parseUint(s, &n)
		set(inDrops.made(r), uint64(n))
		return err
	}
	if f.Kind != Name {
		return f
	}
	f.zeroAbsent = true
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return append(b, nameOf(f.Values, int(f.Uint(r)))...) }
	f.Set = func(s string, _ *Origin, r *Record) error {
		i, err := indexOf(f.Values[1:], s, f.Name)
		set(inDrops.made(r), uint64(i+1))
		return err
	}
	return f
}

// dropText is the rule in words. It has no element: the id says it.
func dropText() Field {
	f := inDrops.field(0, "", "", "", Field{
		Name: "by", Kind: Text, Aliases: []string{"dropped_by"}, Example: `dropped_by "drop udp*"`,
		Doc: "text of the rule; absent: several rules did",
	})
	f.IPFIX, f.Missing = nil, nil
	f.Str = func(r *Record) string {
		if r.Drop == nil {
			return ""
		}
		return r.Drop.Text
	}
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return append(b, f.Str(r)...) }
	f.Set = func(s string, _ *Origin, r *Record) error { inDrops.made(r).Text = s; return nil }
	f.AppendKey = func(b []byte, r *Record) []byte { return append(b, f.Str(r)+"\x00"...) }
	f.Compare = func(a, b *Record) int { return cmp.Compare(f.Str(a), f.Str(b)) }
	f.Copy = func(to, from *Record) { to.Drop = from.Drop }
	return absentEmpty(f)
}

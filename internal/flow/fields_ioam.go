package flow

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
)

// inIOAM is the object of flows whose packets bring IOAM options that end here.
var inIOAM = object[IOAM]{name: "ioam", element: "waymarkIOAM", at: func(r *Record) **IOAM { return &r.IOAM }}

// ioamFields are the fields of the object ioam.
var ioamFields = slices.Concat(ioamPathFields, ioamSums, ioamDelays.sums("from the first node to the last"), []Field{
	ioamDelays.derived(
		ioamDelays.field("mean_ns", "ns", "mean of the path delays", -1, "", "", ""),
		func(d *Delays) uint64 { return uint64(d.Mean()) }, "path_delay",
	),
	ioamFlag(45, "Relative", Field{Name: "relative", Doc: "true: the clocks of the first node and the last do not agree, so there is no path delay"}),
})

// ioamPathFields say which path it is.
var ioamPathFields = []Field{
	ioamText(30, "PathId", 12, Field{Name: "path", Aliases: []string{"path"}, Doc: "path that the traces of the latest packets show, as `waymark paths` names it; absent: no trace", Example: "path 0c1b4b1e2f60"},
		func(p *IOAM) string { return p.ID.String() },
		func(p *IOAM, s string) error {
			id, err := strconv.ParseUint(s, 16, 48)
			if err != nil || len(s) != 12 {
				return fmt.Errorf("%q: want 12 hexadecimal digits", s)
			}
			p.ID = IOAMPathID(id)
			return nil
		},
		func(to, from *IOAM) { to.IOAMPath = from.IOAMPath }),
	ioamText(31, "Nodes", VariableLen, Field{Name: "nodes", Aliases: []string{"nodes"}, Doc: "ids of its nodes, from the encapsulating one on; absent: no trace", Example: "nodes 1-2-4, nodes *-3-*"},
		func(p *IOAM) string { return p.Nodes },
		func(p *IOAM, s string) error { p.Nodes = s; return nil },
		func(to, from *IOAM) { to.Nodes = from.Nodes }),
	ioamNumber(32, "Namespace", "unsigned16", Field{Name: "namespace", Max: maxUint16, Doc: "IOAM namespace of the traces; absent: no trace"},
		func(p *IOAM) uint64 { return uint64(p.Namespace) }, func(p *IOAM, n uint64) { p.Namespace = uint16(n) }),
	ioamNumber(33, "HopCount", "unsigned8", Field{Name: "hops", Max: maxUint8, Doc: "number of its nodes; absent: no trace"},
		func(p *IOAM) uint64 { return uint64(p.Hops) }, func(p *IOAM, n uint64) { p.Hops = uint8(n) }),
}

// ioamSums are the sums.
var ioamSums = []Field{
	sometimes(inIOAM.sum(34, "Packet", Field{Name: "packets", Title: "TRACED", Doc: "packets with a trace", Aliases: []string{"traced_packets"}},
		func(p *IOAM) *uint64 { return &p.Packets })),
	sometimes(inIOAM.sum(35, "PathChange", Field{Name: "changes", Doc: "changes of the path", Aliases: []string{"path_changes"}},
		func(p *IOAM) *uint64 { return &p.Changes })),
	sometimes(inIOAM.sum(36, "Received", Field{Name: "received", Doc: "packets with an edge-to-edge sequence number that is believed, a GSO burst as one"},
		func(p *IOAM) *uint64 { return &p.Received })),
	inIOAM.signedSum(37, "Lost", Field{
		Name: "lost", Aliases: []string{"path_lost"},
		Doc: "packets that these numbers say did not come; flows between the same hosts share numbers, and the flow whose packet showed the loss has it",
	}, func(p *IOAM) *int64 { return &p.Lost }),
	sometimes(inIOAM.sum(38, "Reordered", Field{Name: "reordered", Title: "REORD", Doc: "packets that came behind later ones", Aliases: []string{"path_reordered"}},
		func(p *IOAM) *uint64 { return &p.Reordered })),
	sometimes(inIOAM.sum(39, "Duplicate", Field{Name: "duplicates", Title: "DUP", Doc: "packets that arrived more than once", Aliases: []string{"path_duplicates"}},
		func(p *IOAM) *uint64 { return &p.Duplicates })),
}

// IOAMCounters are where the unsigned sums lie.
var IOAMCounters = sumsOf[IOAM](ioamSums)

var ioamDelays = delays[IOAM]{inIOAM, "delay", "path delay", "Path", 40, func(p *IOAM) *Delays { return &p.Delay }}

// ioamText is a text of the path, which records may be grouped by.
func ioamText(id uint16, element string, length uint16, f Field, of func(*IOAM) string, set func(*IOAM, string) error, take func(to, from *IOAM)) Field {
	f = inIOAM.field(id, element, "string", "", f)
	f.IPFIX[0].Len, f.IPFIX[0].Semantics = length, ""
	f.Kind = Text
	f.Str = func(r *Record) string {
		if r.IOAM == nil {
			return ""
		}
		return of(r.IOAM)
	}
	f.Missing = nil // it is "" where there is none, as other texts are
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return append(b, f.Str(r)...) }
	f.Set = func(s string, _ *Origin, r *Record) error { return set(inIOAM.made(r), s) }
	f.AppendKey = func(b []byte, r *Record) []byte {
		s := f.Str(r)
		return append(binary.NativeEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	f.Compare = func(a, b *Record) int { return cmp.Compare(f.Str(a), f.Str(b)) }
	f.Copy = func(to, from *Record) {
		if f.Str(from) != "" {
			take(inIOAM.made(to), from.IOAM)
		}
	}
	return absentEmpty(f)
}

// ioamNumber is a number of the path; a row of several paths has none.
func ioamNumber(id uint16, element, dataType string, f Field, of func(*IOAM) uint64, set func(*IOAM, uint64)) Field {
	f = missing(inIOAM.field(id, element, dataType, "identifier", f), func(r *Record) bool { return r.IOAM == nil || r.IOAM.Hops == 0 })
	f.Kind, f.Merge = Number, MergeAgree
	f.Uint = func(r *Record) uint64 {
		if r.IOAM == nil {
			return 0
		}
		return of(r.IOAM)
	}
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, f.Uint(r)) }
	f.Set = func(s string, _ *Origin, r *Record) error {
		var n uint64
		if err := parseUint(s, &n); err != nil {
			return err
		}
		set(inIOAM.made(r), n)
		return nil
	}
	return f
}

func ioamFlag(id uint16, element string, f Field) Field {
	f = inIOAM.field(id, element, "boolean", "", f)
	f.Kind, f.Merge = Flag, MergeOr
	f.Uint = func(r *Record) uint64 {
		if r.IOAM != nil && r.IOAM.Relative {
			return 1
		}
		return 0
	}
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return strconv.AppendBool(b, f.Uint(r) != 0) }
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		inIOAM.made(r).Relative, err = strconv.ParseBool(s)
		return err
	}
	return absentZero(f)
}

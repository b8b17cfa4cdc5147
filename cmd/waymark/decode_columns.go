package main

import (
	"math"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/wire/pdm"
)

// column is one value of a row, for JSON and CSV alike: defined once. A nil value
// is left out of JSON and empty in CSV.
type column[T any] struct {
	name  string
	value func(T) any
}

// protocol is a number in JSON and a name where people read it.
type protocol uint8

func (p protocol) String() string { return flow.ProtoName(uint8(p)) }

// packetRow is one packet of waymark decode.
type packetRow struct {
	*offline.Packet
	inband.Observation
}

// packetColumns are those of a packet with PDM.
var packetColumns = append(slices.Concat(endColumns, pdmColumns), errorColumn)

// endColumns say which packet it is.
var endColumns = []column[packetRow]{
	{"frame", func(r packetRow) any { return r.Frame }},
	{"time", func(r packetRow) any { return timeValue(r.Time) }},
	{"proto", func(r packetRow) any { return protocol(r.Proto) }},
	{"src", func(r packetRow) any { return r.Src.Addr().String() }},
	{"sport", func(r packetRow) any { return r.Src.Port() }},
	{"dst", func(r packetRow) any { return r.Dst.Addr().String() }},
	{"dport", func(r packetRow) any { return r.Dst.Port() }},
}

var pdmColumns = []column[packetRow]{
	{"psntp", option(func(o pdm.Option) any { return o.PSNTP })},
	{"psnlr", option(func(o pdm.Option) any { return o.PSNLR })},
	{"delta_tlr", option(func(o pdm.Option) any { return o.DeltaTLR })},
	{"scale_dtlr", option(func(o pdm.Option) any { return o.ScaleDTLR })},
	{"delta_tls", option(func(o pdm.Option) any { return o.DeltaTLS })},
	{"scale_dtls", option(func(o pdm.Option) any { return o.ScaleDTLS })},
	{"dtlr_ns", option(func(o pdm.Option) any { return nanoseconds(o.DeltaTLR, o.ScaleDTLR) })},
	{"dtls_ns", option(func(o pdm.Option) any { return nanoseconds(o.DeltaTLS, o.ScaleDTLS) })},
	{"arrival", whenRead(func(r packetRow) any { return r.Arrival.String() })},
	{"server_ns", func(r packetRow) any { return known(r.HasHost, r.Host) }},
	{"path_ns", func(r packetRow) any { return known(r.HasPath, r.Path) }},
	{"network_ns", func(r packetRow) any { return known(r.HasNetwork, r.Network) }},
	{"suspicious", func(r packetRow) any { return nonEmpty(r.Suspicion.String()) }},
}

var errorColumn = column[packetRow]{"error", func(r packetRow) any {
	switch err := r.unreadable(); err {
	case nil:
		return nil
	default:
		return err.Error()
	}
}}

// unreadable is why an option of the packet could not be read.
func (r packetRow) unreadable() error {
	if r.Err != nil && !r.Unmarked() {
		return r.Err
	}
	return r.IOAMErr
}

// option is a value of the option, which a packet with an error has not.
func option(value func(pdm.Option) any) func(packetRow) any {
	return whenRead(func(r packetRow) any { return value(r.Option) })
}

func whenRead(value func(packetRow) any) func(packetRow) any {
	return func(r packetRow) any {
		if r.Err != nil {
			return nil
		}
		return value(r)
	}
}

// flowColumns are those of one conversation, whose source is the client. What a
// flow record has, too, has its name; pdm.back is the part of the server's packets.
var flowColumns = func() []column[*offline.Conversation] {
	type conversation = *offline.Conversation
	cols := []column[conversation]{
		{"proto", func(c conversation) any { return protocol(c.Flow().Proto) }},
		{"src", func(c conversation) any { return c.Flow().Src.Addr().String() }},
		{"sport", func(c conversation) any { return c.Flow().Src.Port() }},
		{"dst", func(c conversation) any { return c.Flow().Dst.Addr().String() }},
		{"dport", func(c conversation) any { return c.Flow().Dst.Port() }},
		{"first", func(c conversation) any { return timeValue(c.First) }},
		{"last", func(c conversation) any { return timeValue(c.Last) }},
	}
	for _, s := range sideColumns {
		cols = append(cols, column[conversation]{"pdm." + s.name, func(c conversation) any {
			return s.value(c.Client()) + s.value(c.Server())
		}})
	}
	delay := func(name string, of func(conversation) *inband.Histogram) {
		cols = append(cols, column[conversation]{name + ".count", func(c conversation) any { return of(c).Count }})
		for _, s := range histogramColumns {
			cols = append(cols, column[conversation]{name + "." + s.name, func(c conversation) any {
				return known(of(c).Count > 0, s.value(of(c)))
			}})
		}
	}
	delay("pdm.server", func(c conversation) *inband.Histogram { return &c.Server().Host })
	delay("pdm.network", func(c conversation) *inband.Histogram { return &c.Client().Network })
	delay("pdm.client", func(c conversation) *inband.Histogram { return &c.Client().Host })
	delay("pdm.to_server", func(c conversation) *inband.Histogram { return &c.Server().Path })
	delay("pdm.to_client", func(c conversation) *inband.Histogram { return &c.Client().Path })
	for _, s := range sideColumns {
		cols = append(cols, column[conversation]{"pdm.back." + s.name, func(c conversation) any { return s.value(c.Server()) }})
	}
	return cols
}()

var histogramColumns = []struct {
	name  string
	value func(*inband.Histogram) time.Duration
}{
	{"sum_ns", func(h *inband.Histogram) time.Duration { return time.Duration(min(h.Sum, math.MaxInt64)) }},
	{"min_ns", func(h *inband.Histogram) time.Duration { return h.Quantile(0) }},
	{"max_ns", func(h *inband.Histogram) time.Duration { return h.Quantile(1) }},
	{"p50_ns", func(h *inband.Histogram) time.Duration { return h.Quantile(0.5) }},
	{"p90_ns", func(h *inband.Histogram) time.Duration { return h.Quantile(0.9) }},
	{"p99_ns", func(h *inband.Histogram) time.Duration { return h.Quantile(0.99) }},
}

// sideColumns count the packets that one side sent.
var sideColumns = []struct {
	name  string
	value func(*inband.SideStats) uint64
}{
	{"received", func(s *inband.SideStats) uint64 { return s.Packets }},
	{"lost", func(s *inband.SideStats) uint64 { return s.Lost }},
	{"reordered", func(s *inband.SideStats) uint64 { return s.Reordered }},
	{"duplicates", func(s *inband.SideStats) uint64 { return s.Duplicates }},
	{"suspicious", func(s *inband.SideStats) uint64 { return s.Suspicious }},
	{"burst_copies", func(s *inband.SideStats) uint64 { return s.Copies }},
	{"late", func(s *inband.SideStats) uint64 { return s.Late }},
	{"restarts", func(s *inband.SideStats) uint64 { return s.Restarts }},
	{"unpaired", func(s *inband.SideStats) uint64 { return s.Unpaired }},
}

var totalColumns = []column[offline.Totals]{
	{"frames", func(s offline.Totals) any { return s.Frames }},
	{"unknown_link", func(s offline.Totals) any { return s.UnknownLink }},
	{"ipv6_packets", func(s offline.Totals) any { return s.Packets }},
	{"pdm", func(s offline.Totals) any { return s.Marked }},
	{"pdm_v2", func(s offline.Totals) any { return s.Version2 }},
	{"malformed", func(s offline.Totals) any { return s.Malformed }},
	{"ioam", func(s offline.Totals) any { return s.IOAM }},
	{"ioam_malformed", func(s offline.Totals) any { return s.IOAMMalformed }},
	{"flows_dropped", func(s offline.Totals) any { return s.FlowsDropped }},
	{"packets_dropped", func(s offline.Totals) any { return s.PacketsDropped }},
}

// timeValue is RFC 3339 in UTC with nanoseconds, as in flow records.
func timeValue(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000000Z")
}

func nanoseconds(delta uint16, scale uint8) uint64 {
	ns, _ := pdm.Nanoseconds(delta, scale)
	return ns
}

func known(is bool, d time.Duration) any {
	if !is {
		return nil
	}
	return d.Nanoseconds()
}

func nonEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

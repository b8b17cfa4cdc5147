package main

import (
	"time"

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

// packetRow is one packet of waymark decode.
type packetRow struct {
	*offline.Packet
	inband.Observation
}

var packetColumns = []column[packetRow]{
	{"frame", func(r packetRow) any { return r.Frame }},
	{"time", func(r packetRow) any { return timeValue(r.Time) }},
	{"proto", func(r packetRow) any { return r.Proto }},
	{"src", func(r packetRow) any { return r.Src.Addr().String() }},
	{"sport", func(r packetRow) any { return r.Src.Port() }},
	{"dst", func(r packetRow) any { return r.Dst.Addr().String() }},
	{"dport", func(r packetRow) any { return r.Dst.Port() }},
	{"psntp", option(func(o pdm.Option) any { return o.PSNTP })},
	{"psnlr", option(func(o pdm.Option) any { return o.PSNLR })},
	{"delta_tlr", option(func(o pdm.Option) any { return o.DeltaTLR })},
	{"scale_dtlr", option(func(o pdm.Option) any { return o.ScaleDTLR })},
	{"delta_tls", option(func(o pdm.Option) any { return o.DeltaTLS })},
	{"scale_dtls", option(func(o pdm.Option) any { return o.ScaleDTLS })},
	{"dtlr_ns", option(func(o pdm.Option) any { return nanoseconds(o.DeltaTLR, o.ScaleDTLR) })},
	{"dtls_ns", option(func(o pdm.Option) any { return nanoseconds(o.DeltaTLS, o.ScaleDTLS) })},
	{"arrival", whenRead(func(r packetRow) any { return r.Arrival.String() })},
	{"host_delay_ns", func(r packetRow) any { return known(r.HasHost, r.Host) }},
	{"path_rtt_ns", func(r packetRow) any { return known(r.HasPath, r.Path) }},
	{"network_rtt_ns", func(r packetRow) any { return known(r.HasNetwork, r.Network) }},
	{"suspicious", func(r packetRow) any { return nonEmpty(r.Suspicion.String()) }},
	{"error", func(r packetRow) any {
		if r.Err == nil {
			return nil
		}
		return r.Err.Error()
	}},
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

// flowColumns are those of one conversation: who, five delays, two directions.
var flowColumns = func() []column[*offline.Conversation] {
	type conversation = *offline.Conversation
	cols := []column[conversation]{
		{"first", func(c conversation) any { return timeValue(c.First) }},
		{"last", func(c conversation) any { return timeValue(c.Last) }},
		{"proto", func(c conversation) any { return c.Flow().Proto }},
		{"client", func(c conversation) any { return c.Flow().Src.Addr().String() }},
		{"client_port", func(c conversation) any { return c.Flow().Src.Port() }},
		{"server", func(c conversation) any { return c.Flow().Dst.Addr().String() }},
		{"server_port", func(c conversation) any { return c.Flow().Dst.Port() }},
	}
	delay := func(name string, of func(conversation) *inband.Histogram) {
		cols = append(cols, column[conversation]{name + "_count", func(c conversation) any { return of(c).Count }})
		for _, s := range histogramColumns {
			cols = append(cols, column[conversation]{name + "_" + s.name + "_ns", func(c conversation) any {
				return known(of(c).Count > 0, s.value(of(c)))
			}})
		}
	}
	delay("server_delay", func(c conversation) *inband.Histogram { return &c.Server().Host })
	delay("network_rtt", func(c conversation) *inband.Histogram { return &c.Client().Network })
	delay("client_delay", func(c conversation) *inband.Histogram { return &c.Client().Host })
	delay("server_path_rtt", func(c conversation) *inband.Histogram { return &c.Server().Path })
	delay("client_path_rtt", func(c conversation) *inband.Histogram { return &c.Client().Path })
	side := func(name string, of func(conversation) *inband.SideStats) {
		for _, s := range sideColumns {
			cols = append(cols, column[conversation]{name + "_" + s.name, func(c conversation) any { return s.value(of(c)) }})
		}
	}
	side("client", conversation.Client)
	side("server", conversation.Server)
	return cols
}()

var histogramColumns = []struct {
	name  string
	value func(*inband.Histogram) time.Duration
}{
	{"min", func(h *inband.Histogram) time.Duration { return h.Quantile(0) }},
	{"mean", (*inband.Histogram).Mean},
	{"p50", func(h *inband.Histogram) time.Duration { return h.Quantile(0.5) }},
	{"p90", func(h *inband.Histogram) time.Duration { return h.Quantile(0.9) }},
	{"p99", func(h *inband.Histogram) time.Duration { return h.Quantile(0.99) }},
	{"max", func(h *inband.Histogram) time.Duration { return h.Quantile(1) }},
}

// sideColumns count the packets that one side sent.
var sideColumns = []column[*inband.SideStats]{
	{"packets", func(s *inband.SideStats) any { return s.Packets }},
	{"lost", func(s *inband.SideStats) any { return s.Lost }},
	{"reordered", func(s *inband.SideStats) any { return s.Reordered }},
	{"duplicates", func(s *inband.SideStats) any { return s.Duplicates }},
	{"burst_copies", func(s *inband.SideStats) any { return s.Copies }},
	{"late", func(s *inband.SideStats) any { return s.Late }},
	{"restarts", func(s *inband.SideStats) any { return s.Restarts }},
	{"suspicious", func(s *inband.SideStats) any { return s.Suspicious }},
	{"unpaired", func(s *inband.SideStats) any { return s.Unpaired }},
}

var totalColumns = []column[offline.Totals]{
	{"frames", func(s offline.Totals) any { return s.Frames }},
	{"unknown_link", func(s offline.Totals) any { return s.UnknownLink }},
	{"ipv6_packets", func(s offline.Totals) any { return s.Packets }},
	{"pdm", func(s offline.Totals) any { return s.Marked }},
	{"pdm_v2", func(s offline.Totals) any { return s.Version2 }},
	{"malformed", func(s offline.Totals) any { return s.Malformed }},
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

package analyze

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// receiving is an analyzer that devices send to, from the addresses of this host.
type receiving struct {
	*scene
	t  *testing.T
	a  *Analyzer
	to string
}

func receive(t *testing.T, change ...func(*settings.Config)) *receiving {
	t.Helper()
	s := newScene(t)
	a, _ := s.start(t, append([]func(*settings.Config){func(c *settings.Config) {
		c.Receive = []settings.Receive{{Listen: "127.0.0.1:0"}}
		c.Devices = []settings.Device{{Address: "127.0.0.1", Name: "core1"}}
		c.ScanInterval = 100 * time.Millisecond
	}}, change...)...)
	return &receiving{s, t, a, a.devices.Status()[0].Listen}
}

// dial is a device.
func (r *receiving) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("udp", r.to)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// rows are those by flow.
func (r *receiving) rows(request api.Request) []api.Row {
	r.t.Helper()
	request.Everywhere, request.Limit = true, 10000
	a, err := api.NewClient(filepath.Join(r.dir, "s")).Flows(context.Background(), request)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Rows
}

// host is the status of one.
func (r *receiving) host(name string) state.Host {
	r.t.Helper()
	s := r.a.Status()
	for _, h := range obs.SectionOf[state.Status](&s, state.Section).Hosts {
		if h.Name == name {
			return h
		}
	}
	return state.Host{}
}

// arrived waits until so many packets are in the records of all hosts.
func (r *receiving) arrived(want uint64) {
	r.t.Helper()
	await.Success(r.t, func() error {
		var packets uint64
		for _, row := range r.rows(api.Request{By: "host"}) {
			packets += row.Packets
		}
		if packets != want {
			h := r.host("core1")
			return fmt.Errorf("%d packets arrived, want %d; %+v; refused %v", packets, want, h.Device, r.a.devices.Status()[0].Refused)
		}
		return nil
	})
}

// flowsOf are n records of different flows.
func flowsOf(n int, at time.Time) (list []flow.Record, packets uint64) {
	for i := range n {
		r := flow.Record{
			Iface: fmt.Sprintf("eth%d", i%3), IfIndex: uint32(i%3 + 1), Direction: flow.Direction(i / 3 % 2), Family: 4, Proto: 17,
			Src: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Dst: netip.MustParseAddr("192.0.2.53"), SrcPort: uint16(1024 + i), DstPort: 53,
			VLAN: uint16(i % 5), TOS: uint8(i), TTLMin: 60, TTLMax: uint8(60 + i%4),
			First: at.Add(time.Duration(i) * time.Microsecond), Last: at.Add(time.Second),
			Counters: flow.Counters{Packets: uint64(i%7 + 1), Bytes: uint64(100 * (i + 1)), PayloadBytes: uint64(50 * (i + 1)), WireBytes: uint64(114 * (i + 1))},
		}
		switch i % 4 {
		case 1:
			r.Proto, r.DstPort, r.TCPFlags = 6, 443, 0x1b
		case 2:
			r.Family, r.Src, r.Dst, r.FlowLabel = 6, netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)), netip.MustParseAddr("2001:db8:1::2"), uint32(i)
		case 3:
			r.Proto, r.SrcPort, r.DstPort = 1, 0, 8<<8
		}
		packets += r.Packets
		list = append(list, r)
	}
	return list, packets
}

// TestOwnIPFIX: what an agent exports as IPFIX arrives as it was, each record.
func TestOwnIPFIX(t *testing.T) {
	r := receive(t)
	cfg := ipfix.Default()
	cfg.Collector, cfg.ObservationDomain = "udp://"+r.to, 0
	origin := flow.Origin{Host: "athos", Sampling: 1}
	e, err := ipfix.New(cfg, origin, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list, packets := flowsOf(1000, time.Now().Add(-time.Minute).UTC())
	if n, err := e.Export(context.Background(), list); n != len(list) || err != nil {
		t.Fatal(n, err)
	}
	r.arrived(packets)
	got := map[string]map[string]any{}
	for _, row := range r.rows(api.Request{}) {
		var fields map[string]any
		if err := json.Unmarshal(row.JSON, &fields); err != nil {
			t.Fatal(err)
		}
		got[fmt.Sprint(fields["src"], fields["sport"], fields["direction"])] = fields
	}
	for i := range list {
		var want map[string]any
		if err := json.Unmarshal(jsonl.Append(nil, &origin, &list[i]), &want); err != nil {
			t.Fatal(err)
		}
		has := got[fmt.Sprint(want["src"], want["sport"], want["direction"])]
		want["host"] = "core1"
		for name, value := range want {
			if name != "end_reason" && fmt.Sprint(has[name]) != fmt.Sprint(value) {
				t.Errorf("record %d: %s is %v, want %v", i, name, has[name], value)
			}
		}
	}
	if h := r.host("core1"); len(got) != len(list) || h.Device.Records != uint64(len(list)) || len(h.Device.Lost)+len(h.Problems) > 0 || len(h.Device.Dropped) > 0 {
		t.Errorf("%d rows; %+v", len(got), h)
	}
}

package flow

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// half is what an interval counts of one half of a conversation.
type half struct {
	forth   bool // from a to b
	at      time.Duration
	spread  uint8
	opening Opening
}

// The initiator is what the best evidence says, both halves agree, in records of
// intervals and in exported ones, whichever half comes first from the probe.
func TestInitiatorOfConversations(t *testing.T) {
	const (
		ms   = time.Millisecond
		late = 10 * time.Second // after counting began on the interface
	)
	tcp := func(aPort, bPort uint16) Key { return Key{Proto: protoTCP, SrcPort: aPort, DstPort: bPort} }
	udp := func(aPort, bPort uint16) Key { return Key{Proto: protoUDP, SrcPort: aPort, DstPort: bPort} }
	syn, synAck := OpeningSYN, OpeningSYNACK
	for _, tt := range []struct {
		name      string
		key       Key // of a to b
		intervals [][]half
		want      string // of the last records of a to b, and the opposite of those of b to a
	}{
		{"handshake in one tick, server on a high port", tcp(40000, 60999), [][]half{{{true, late, 4, syn}, {false, late, 4, synAck}}}, "src handshake"},
		{"gRPC", tcp(33000, 50051), [][]half{{{false, late, 4, synAck}, {true, late, 4, syn}}}, "src handshake"},
		{"the server has the higher port and the earlier time", tcp(700, 1023), [][]half{{{false, late - 4*ms, 4, synAck}, {true, late, 4, syn}}}, "src handshake"},
		{"only SYN-ACK passes here", tcp(40000, 60999), [][]half{{{false, late, 4, synAck}}}, "src handshake"},
		{"only SYN passes here", tcp(443, 40000), [][]half{{{true, late, 4, syn}}}, "src handshake"},
		{"handshake, then data only", tcp(443, 40000), [][]half{{{true, late, 4, syn}, {false, late, 4, synAck}}, {{false, 2 * late, 4, 0}, {true, 2 * late, 4, 0}}}, "src handshake"},
		{"SYN-ACK in the next interval", tcp(443, 40000), [][]half{{{true, late, 4, syn}}, {{false, 2 * late, 4, synAck}}}, "src handshake"},
		{"a guess, then a handshake", tcp(443, 40000), [][]half{{{true, late, 4, 0}, {false, late, 4, 0}}, {{true, 2 * late, 4, syn}}}, "src handshake"},
		{"both ways within an interval: ports", tcp(40000, 443), [][]half{{{true, late, 4, syn | synAck}, {false, late, 4, syn | synAck}}}, "src ports"},
		{"amid a connection", tcp(40000, 443), [][]half{{{false, late - time.Second, 4, 0}, {true, late, 4, 0}}}, "src ports"},
		{"amid one of a privileged client", tcp(700, 2049), [][]half{{{true, late, 4, 0}, {false, late, 4, 0}}}, "src ports"},
		{"amid one of two ephemeral ports", tcp(40000, 60999), [][]half{{{true, late, 4, 0}, {false, late + time.Second, 4, 0}}}, "unknown none"},
		{"amid one with one port", tcp(179, 179), [][]half{{{true, late, 4, 0}, {false, late, 4, 0}}}, "unknown none"},
		{"DNS in one tick, exact times", udp(40000, 53), [][]half{{{false, late + 20_000, 0, 0}, {true, late, 0, 0}}}, "src first"},
		{"a server on a high port", udp(1024, 60999), [][]half{{{true, late, 0, 0}, {false, late + 1, 0, 0}}}, "src first"},
		{"in one tick, without exact times", udp(40000, 53), [][]half{{{true, late, 4, 0}, {false, late, 4, 0}}}, "src ports"},
		{"in different ticks", udp(53, 40000), [][]half{{{true, late, 4, 0}, {false, late + ms, 4, 0}}}, "src first"},
		{"one exact time in the tick of the other", udp(40000, 60999), [][]half{{{true, late, 4, 0}, {false, late + ms, 0, 0}}}, "unknown none"},
		{"one exact time after the tick of the other", udp(40000, 60999), [][]half{{{true, late, 4, 0}, {false, late + 5*ms, 0, 0}}}, "src first"},
		{"answer in the next interval", udp(53, 40000), [][]half{{{true, late, 0, 0}}, {{false, 2 * late, 0, 0}}}, "src first"},
		{"the answer's flow goes on alone", udp(53, 40000), [][]half{{{true, late, 0, 0}, {false, late + 1, 0, 0}}, {{false, 2 * late, 0, 0}}}, "src first"},
		{"one way", udp(514, 40000), [][]half{{{true, late, 4, 0}}}, "src first"},
		{"older than the agent: ports", udp(40000, 443), [][]half{{{false, 0, 0, 0}, {true, ms, 0, 0}}}, "src ports"},
		{"older than the agent, but as ports say", udp(40000, 443), [][]half{{{true, 0, 0, 0}, {false, ms, 0, 0}}}, "src first"},
		{"older than the agent, nothing else", udp(40000, 60999), [][]half{{{true, 0, 0, 0}, {false, ms, 0, 0}}}, "src first"},
		{"no ports", Key{Proto: 50}, [][]half{{{true, late, 0, 0}, {false, late + ms, 0, 0}}}, "src first"},
		{"echo", Key{Proto: protoICMP, SrcPort: 7, DstPort: 8 << 8}, [][]half{{{false, 0, 4, 0}, {true, late, 4, 0}}}, "src request"},
		{"echo of IPv6, replies alone", Key{Proto: protoICMPv6, IPv6: true, SrcPort: 7, DstPort: 128 << 8}, [][]half{{{false, late, 4, 0}}}, "src request"},
		{"ICMP error", Key{Proto: protoICMP, DstPort: 3 << 8}, [][]half{{{true, late, 4, 0}}}, "unknown none"},
	} {
		tt.key.Src, tt.key.Dst, tt.key.Iface = [16]byte{15: 1}, [16]byte{15: 2}, 2
		for _, mirror := range []bool{false, true} { // a port that mirrors others: one direction
			back := tt.key.Reverse()
			if mirror {
				back.Direction = tt.key.Direction
			}
			last := map[bool]string{}
			note := func(r *Record) {
				if r.Proto != tt.key.Proto {
					return
				}
				if forth := r.Src == tt.key.addr(&tt.key.Src); forth {
					last[true] = fmt.Sprint(r.Initiator, " ", r.InitiatorBy)
				} else {
					last[false] = fmt.Sprint(r.Initiator.Opposite(), " ", r.InitiatorBy)
				}
			}
			table := NewTable(TableConfig{MaxFlows: 100, ActiveTimeout: time.Second, IdleTimeout: time.Hour}, anyName, TableOutput{Interval: note, Expired: note})
			table.Merge(&Delta{Key: Key{Iface: 2, Proto: 99}, Counts: Counts{Counters: Counters{Packets: 1}}})
			for i, halves := range tt.intervals {
				for _, h := range halves {
					d := Delta{Key: back, Counts: Counts{Counters: Counters{Packets: 1}, First: int64(h.at), Last: int64(h.at), FirstSpread: h.spread, Opening: h.opening}}
					if h.forth {
						d.Key = tt.key
					}
					table.Merge(&d)
				}
				clear(last)
				now := time.Unix(0, int64(i+1)*int64(late)*2)
				table.EndInterval(now)
				for forth, got := range last {
					if i == len(tt.intervals)-1 && got != tt.want {
						t.Errorf("%s, mirror %v, from the initiator %v: %s, want %s", tt.name, mirror, forth, got, tt.want)
					}
				}
			}
			table.Flush()
		}
	}
}

func anyName(Iface) (name, netns string) { return "eth0", "" }

// A flow in several slots of the kernel's table has the exact time of its first
// packet, where a program took it, unless another was in an earlier tick.
func TestFirstOfSeveralSlots(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, tt := range []struct {
		a, b Counts
		want Counts
	}{
		{Counts{First: 5*ms + 7}, Counts{First: 5 * ms, FirstSpread: 1}, Counts{First: 5*ms + 7}},
		{Counts{First: 5*ms + 7}, Counts{First: 4 * ms, FirstSpread: 1}, Counts{First: 4 * ms, FirstSpread: 1}},
		{Counts{First: 5*ms + 7}, Counts{First: 6 * ms, FirstSpread: 1}, Counts{First: 5*ms + 7}},
		{Counts{First: 5*ms + 7}, Counts{First: 5*ms + 8}, Counts{First: 5*ms + 7}},
		{Counts{First: 5 * ms, FirstSpread: 1}, Counts{First: 6 * ms, FirstSpread: 1}, Counts{First: 5 * ms, FirstSpread: 1}},
	} {
		for range 2 {
			var sum Counts
			tt.a.Packets, tt.b.Packets = 1, 1
			sum.Add(&tt.a)
			sum.Add(&tt.b)
			if sum.First != tt.want.First || sum.FirstSpread != tt.want.FirstSpread {
				t.Errorf("%+v and %+v: %d within %d ms", tt.a, tt.b, sum.First, sum.FirstSpread)
			}
			tt.a, tt.b = tt.b, tt.a
		}
	}
}

// A connection that was silent for longer than the idle timeout, or left a full
// table, goes on without a handshake and has the initiator that it had. A new
// handshake decides again.
func TestInitiatorIsRemembered(t *testing.T) {
	const second = int64(time.Second)
	for _, tt := range []struct {
		name    string
		key     Key
		opening Opening // of the client
		want    string
	}{
		{"TCP", Key{Proto: protoTCP, SrcPort: 33000, DstPort: 60999}, OpeningSYN, "src handshake"},
		{"UDP, the server goes on", Key{Proto: protoUDP, SrcPort: 33000, DstPort: 443}, 0, "src first"},
	} {
		tt.key.Src, tt.key.Dst, tt.key.Iface = [16]byte{15: 1}, [16]byte{15: 2}, 2
		back := tt.key.Reverse()
		var got []string
		table := NewTable(TableConfig{MaxFlows: 1000, ActiveTimeout: time.Hour, IdleTimeout: 15 * time.Second}, anyName, TableOutput{
			Expired: func(r *Record) {
				who := r.Initiator
				if r.SrcPort != tt.key.SrcPort {
					who = who.Opposite()
				}
				got = append(got, fmt.Sprint(who, " ", r.InitiatorBy))
			},
		})
		merge := func(k Key, at int64, o Opening) {
			table.Merge(&Delta{Key: k, Counts: Counts{Counters: Counters{Packets: 1}, First: at, Last: at, Opening: o}})
		}
		answer := OpeningSYNACK
		if tt.opening == 0 {
			answer = 0
		}
		merge(tt.key, 10*second, tt.opening)
		merge(back, 10*second+1, answer)
		table.EndInterval(time.Unix(11, 0))
		table.EndInterval(time.Unix(30, 0)) // both leave
		merge(back, 60*second, 0)           // the server is the first to go on
		table.EndInterval(time.Unix(61, 0))
		merge(tt.key, 62*second, 0)
		table.EndInterval(time.Unix(63, 0))
		table.EndInterval(time.Unix(90, 0))
		if want := []string{tt.want, tt.want, tt.want, tt.want}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
		if tt.opening == 0 {
			continue
		}
		// The other end opens a connection between the same ports.
		got = nil
		merge(tt.key, 100*second+1, OpeningSYNACK)
		merge(back, 100*second, OpeningSYN)
		table.EndInterval(time.Unix(101, 0))
		table.Flush()
		if want := []string{"dst handshake", "dst handshake"}; !slices.Equal(got, want) {
			t.Errorf("%s the other way: %q, want %q", tt.name, got, want)
		}
	}
}

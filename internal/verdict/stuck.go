package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/term"
)

// Where a server dies, clients that have connections open few new ones: there are hardly any SYN, but segments that are sent
// again, and not even acknowledged.

const (
	// leastTimeouts is after how many timeouts in a row a connection is stuck: at least 1.4 s.
	leastTimeouts = 3
	// leastSilence is for how long such a service must not have answered a new connection.
	leastSilence = time.Second
	// mostStuck is how many services are looked at.
	mostStuck = 10
)

// stuck are the open connections of this host to a service that are stuck.
type stuck struct {
	serviceID
	connections, segments uint64
	open                  uint64 // connections to the service
	from                  map[netip.Addr]bool
}

// judgeStuck finds services that went silent in the middle of connections.
func judgeStuck(w *window, f *finding) error {
	all := w.stuck()
	if len(all) == 0 {
		return nil
	}
	services, err := w.rows(ofServices)
	if err != nil {
		return err
	}
	known := map[serviceID]bool{}
	for i := range services {
		known[serviceID{services[i].Proto, services[i].Dst, services[i].DstPort}] = true
	}
	all = slices.DeleteFunc(all, func(s *stuck) bool { return !known[s.serviceID] })
	for _, s := range all[:min(len(all), mostStuck)] {
		rows, err := w.rows(s.question())
		if err != nil {
			return err
		}
		answered := w.from // the last connection that was
		for i := range rows {
			if r := &rows[i]; r.RTTSeen > 0 && r.First.After(answered) {
				answered = r.First
			}
		}
		if w.to.Sub(answered) >= leastSilence {
			f.add(w.silenceOf(s))
		}
	}
	return nil
}

// question asks for the connections of a service.
func (id *serviceID) question() question {
	return question{filter: fmt.Sprintf("tcp and host %s and port %d", id.addr, id.port), by: "conversation", sort: "packets", limit: mostRows}
}

// stuck asks the kernel, where segments were sent again, for connections whose other end is silent, as long as it is so for
// most connections to the service; those with the most first. It knows them as of now only.
func (w *window) stuck() []*stuck {
	at := map[serviceID]*stuck{}
	counted, _ := w.counters(Retransmissions)
	for _, c := range counted {
		if c.N == 0 || w.request.past || w.request.Filter != "" {
			continue
		}
		open, _ := w.deps.Connections(c.Where.Netns) // the rule of retransmissions says why there are none
		for i := range open {
			id := serviceID{6, open[i].Dst, open[i].DstPort}
			if open[i].Timeouts < leastTimeouts || open[i].Sent == 0 { // it is not open yet: records have its SYN
				continue
			}
			if at[id] == nil {
				at[id] = &stuck{serviceID: id, from: map[netip.Addr]bool{}}
			}
			at[id].connections++
			at[id].open = max(at[id].open, uint64(open[i].Open))
			at[id].segments += uint64(open[i].Timeouts)
			at[id].from[open[i].Src] = true
		}
	}
	maps.DeleteFunc(at, func(_ serviceID, s *stuck) bool { return 2*s.connections < s.open })
	return slices.SortedFunc(maps.Values(at), func(a, b *stuck) int {
		return cmp.Or(cmp.Compare(b.connections, a.connections), a.addr.Compare(b.addr), cmp.Compare(a.port, b.port))
	})
}

func (w *window) silenceOf(s *stuck) Verdict {
	hosts := addresses(s.addr)
	for host := range s.from {
		hosts[host] = true
	}
	service := Flow{Proto: flow.ProtoName(s.proto), Dst: s.addr, DstPort: s.port}
	return Verdict{
		Text: fmt.Sprintf("%s does not answer %d of %s (%s without an answer)", endpoint(s.addr, s.port),
			s.connections, term.Number(max(s.open, s.connections), "open connections"), term.Number(s.segments, "segments")),
		Measure: "share of open connections without an answer", Unit: "share", Value: float64(s.connections) / float64(max(s.open, s.connections)), Threshold: w.Unanswered, Samples: s.connections,
		Where: Where{Dst: s.addr}, Flow: &service,
		Command: w.command(s.question()),
		scope:   scope{id: service.String(), addresses: hosts, lost: s.segments, loss: 0.5},
	}
}

package verdict

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// leastSYN is the fewest SYN without an answer that give a verdict.
const leastSYN = 3

// A SYN that is answered is followed by an ACK; one that is not is repeated after a second. Where
// an interval ends between SYN and ACK, there is a single one.
var (
	unanswered = question{filter: "tcp and tcp_flags syn and not tcp_flags ack and not tcp_flags rst", by: "in,proto,src,sport,dst,dport", sort: "packets", limit: mostRows, sums: []string{"packets"}}
	ofServices = question{filter: "tcp", by: "service,dst", sort: "records", limit: mostRows, reads: fieldsOf("rtt.")}
)

// serviceID is a port of a server.
type serviceID struct {
	proto uint8
	addr  netip.Addr
	port  uint16
}

// attempts are connections to a service that had no answer.
type attempts struct {
	Flow
	connections, syn uint64
	own              bool // some of this host
	from             map[netip.Addr]bool
}

// judgeUnanswered finds services that do not answer.
func judgeUnanswered(w *window, f *finding) error {
	answered, err := answered(w.rows(ofServices))
	if err != nil {
		return err
	}
	silent, err := w.silent()
	if err != nil {
		return err
	}
	f.count = uint64(len(answered))
	var before map[serviceID]uint64
	for _, a := range silent {
		id := serviceID{6, a.Dst, a.DstPort}
		if answered[id] == 0 {
			f.count++
		}
		share := float64(a.connections) / float64(a.connections+answered[id])
		if a.syn < leastSYN || share < w.Unanswered {
			continue
		}
		if !a.own && answered[id] == 0 { // a scan of ports where nothing is
			if before == nil {
				if before, err = w.answeredBefore(silent); err != nil {
					return err
				}
			}
			if before[id] == 0 {
				continue
			}
		}
		f.add(w.silence(a, answered[id], share))
	}
	return judgeStuck(w, f)
}

// answered counts the handshakes of each service.
func answered(rows []query.Row, err error) (map[serviceID]uint64, error) {
	out := map[serviceID]uint64{}
	for i := range rows {
		if r := &rows[i]; r.RTTSeen > 0 {
			out[serviceID{r.Proto, r.Dst, r.DstPort}] += r.RTTSeen
		}
	}
	return out, err
}

// answeredBefore counts those of services that do not answer now.
func (w *window) answeredBefore(silent []*attempts) (map[serviceID]uint64, error) {
	id := func(r *query.Row) string { return endpoint(r.Dst, r.DstPort) }
	var of []thing
	for _, a := range silent {
		of = append(of, thing{endpoint(a.Dst, a.DstPort), fmt.Sprintf("(host %s and port %d)", a.Dst, a.DstPort)})
	}
	return answered(w.usual(ofServices, of, id))
}

// silent gathers connections without an answer by service, those with the most first.
func (w *window) silent() ([]*attempts, error) {
	rows, err := w.rows(unanswered)
	if err != nil {
		return nil, err
	}
	at := map[serviceID]*attempts{}
	var list []*attempts
	for i := range rows {
		r := &rows[i]
		id := serviceID{r.Proto, r.Dst, r.DstPort}
		if !unicast(r.Dst) || r.Packets < 2 {
			continue
		}
		a := at[id]
		if a == nil {
			a = &attempts{Flow: Flow{Proto: flow.ProtoName(r.Proto), Dst: r.Dst, DstPort: r.DstPort}, from: map[netip.Addr]bool{}}
			at[id], list = a, append(list, a)
		}
		a.connections++
		a.syn += r.Packets
		a.own = a.own || r.In == ""
		a.from[r.Src] = true
	}
	order.By(list, func(a, b *attempts) int { return cmp.Compare(b.connections, a.connections) })
	return list, nil
}

func (w *window) silence(a *attempts, answered uint64, share float64) Verdict {
	who := term.Number(uint64(len(a.from)), "hosts")
	hosts := addresses(a.Dst)
	for host := range a.from {
		if len(a.from) == 1 {
			who = host.String()
		}
		hosts[host] = true
	}
	own := a.Flow
	return Verdict{
		Text: fmt.Sprintf("%s does not answer %d of %s from %s (%d SYN without an answer); threshold %s", endpoint(a.Dst, a.DstPort),
			a.connections, term.Number(a.connections+answered, "connections"), who, a.syn, term.Percent(w.Unanswered)),
		Measure: "share of connections without an answer", Unit: "share", Value: share, Threshold: w.Unanswered, Samples: a.connections,
		Where: Where{Dst: a.Dst}, Flow: &own,
		Command: w.command((&serviceID{6, a.Dst, a.DstPort}).question()),
		scope:   scope{id: own.String(), addresses: hosts, lost: a.syn, loss: 0.5},
	}
}

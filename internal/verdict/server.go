package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/term"
)

// service is a port of a server, with what PDM reports of its answers.
type service struct {
	Flow
	pdm   *flow.PDM
	usual *flow.PDM // before the window; nil: not known
}

// answers of servers, which stand with the half of a conversation that the client receives.
var ofServers = question{
	filter: "pdm and direction ingress and initiator dst", by: "proto,src,sport", sort: "delays", limit: 500,
	reads:      slices.Concat(fieldsOf("pdm.server."), fieldsOf("pdm.network.")),
	everywhere: true, // delays are the same, and nobody has to find out where packets were seen first
}

// fieldsOf are the fields of an inner object.
func fieldsOf(prefix string) (names []string) {
	for i := range flow.Fields {
		if strings.HasPrefix(flow.Fields[i].Name, prefix) {
			names = append(names, flow.Fields[i].Name)
		}
	}
	return names
}

// servers asks for the services once, and for what was usual if some of them is slow.
func (w *window) servers() ([]service, error) {
	if w.asked {
		return w.services, nil
	}
	rows, err := w.rows(ofServers)
	if err != nil {
		return nil, err
	}
	var slow []thing
	for i := range rows {
		r := &rows[i]
		if r.PDM == nil {
			continue
		}
		w.services = append(w.services, service{Flow: Flow{Proto: flow.ProtoName(r.Proto), Dst: r.Src, DstPort: r.SrcPort}, pdm: r.PDM})
		if w.median(&r.PDM.Server) >= w.ServerDelay || w.median(&r.PDM.Network) >= w.PathDelay {
			slow = append(slow, thing{serviceOf(r), fmt.Sprintf("(%s and src host %s and sport %d)", flow.ProtoName(r.Proto), r.Src, r.SrcPort)})
		}
	}
	if len(slow) > 0 {
		err = w.compareServices(slow)
	}
	w.asked = err == nil
	return w.services, err
}

// serviceOf names the service whose answers a row has.
func serviceOf(r *query.Row) string {
	f := Flow{Proto: flow.ProtoName(r.Proto), Dst: r.Src, DstPort: r.SrcPort}
	return f.String()
}

// compareServices adds what was usual of the slow ones.
func (w *window) compareServices(slow []thing) error {
	before, err := w.usual(ofServers, slow, serviceOf)
	if err != nil {
		return err
	}
	usual := map[string]*flow.PDM{}
	for i := range before {
		usual[serviceOf(&before[i])] = before[i].PDM
	}
	for i := range w.services {
		w.services[i].usual = usual[w.services[i].String()]
	}
	return nil
}

// median of enough delays; 0: of too few.
func (w *window) median(d *flow.Delays) time.Duration {
	if d == nil || d.Count < w.Samples {
		return 0
	}
	return d.Quantile(0.5)
}

// usualMedian is that of a service before the window.
func (w *window) usualMedian(p *flow.PDM, of func(*flow.PDM) *flow.Delays) time.Duration {
	if p == nil {
		return 0
	}
	return w.median(of(p))
}

func serverDelays(p *flow.PDM) *flow.Delays  { return &p.Server }
func networkDelays(p *flow.PDM) *flow.Delays { return &p.Network }

// judgeServers finds servers that take most of the time.
func judgeServers(w *window, f *finding) error {
	services, err := w.servers()
	if err != nil {
		return err
	}
	for i := range services {
		s := &services[i]
		server, network := w.median(&s.pdm.Server), w.median(&s.pdm.Network)
		if s.pdm.Server.Count >= w.Samples {
			f.count++
		}
		usual := w.usualMedian(s.usual, serverDelays)
		if server < w.ServerDelay || float64(server) < w.Share*float64(server+network) || usual > 0 && !w.unusual(server, usual, 0) {
			continue
		}
		own := s.Flow
		f.add(Verdict{
			Text: fmt.Sprintf("The server takes %s of %s at %s, %s; threshold %s",
				term.Duration(server), term.Duration(server+network), own.String(), compared(server, usual), term.Duration(w.ServerDelay)),
			Measure: "median server delay", Unit: "s", Value: server.Seconds(), Threshold: w.ServerDelay.Seconds(), Usual: usual.Seconds(),
			Samples: s.pdm.Server.Count, Flow: &own, Where: Where{Dst: own.Dst},
			Evidence: []string{
				fmt.Sprintf("server delay p90 %s, p99 %s, of %s", term.Duration(s.pdm.Server.Quantile(0.9)), term.Duration(s.pdm.Server.Quantile(0.99)), term.Number(s.pdm.Server.Count, "answers")),
				"median round trip on the network " + term.Duration(network),
			},
			Command: w.command(question{filter: fmt.Sprintf("pdm and direction ingress and %s and src %s and sport %d", own.Proto, own.Dst, own.DstPort), by: "proto,src,sport", sort: "server"}),
			scope:   scope{id: own.String(), addresses: addresses(own.Dst)},
		})
	}
	return nil
}

// compared says how a delay compares with before.
func compared(value, usual time.Duration) string {
	if usual <= 0 {
		return "with no earlier history to compare with"
	}
	return fmt.Sprintf("%s × the usual %s", times(float64(value)/float64(usual)), term.Duration(usual))
}

// times is a factor in two digits.
func times(factor float64) string {
	if factor < 10 {
		return fmt.Sprintf("%.1f", factor)
	}
	return fmt.Sprintf("%.0f", factor)
}

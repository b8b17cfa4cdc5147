package analyze

import (
	"context"

	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/verdict"
)

// own are the records of one host.
type own struct{ h *host }

// Query implements verdict.History.
func (o own) Query(ctx context.Context, p query.Plan) (query.Answer, error) {
	x := query.Executor{Host: o.h.name, Sources: []query.Source{o.h.disk}}
	return x.Answer(ctx, p)
}

// newExaminer finds verdicts in the records of a host. What only its agent knows, counters, links and connections, is not
// examined here.
func (a *Analyzer) newExaminer(h *host) *verdict.Examiner {
	return verdict.New(verdict.Deps{
		Host: h.name, Sampling: 1, History: own{h}, Ledger: verdict.NewLedger(),
		Thresholds:  func() verdict.Thresholds { return verdict.ThresholdsOf(&a.whole.Why) },
		Places:      func() []verdict.Place { return nil },
		Wiring:      func() *flow.Wiring { return nil },
		Speed:       func(string, string) uint64 { return 0 },
		Connections: func(string) ([]verdict.Connection, error) { return nil, nil },
		Conditions: func() (all []verdict.Condition) {
			status := h.status(a.clock(), a.started, a.devices)
			for _, text := range status.Problems {
				all = append(all, verdict.Condition{Text: text, Where: verdict.Where{Part: state.Section}})
			}
			return all
		},
	})
}

// why examines each host by itself, and what is between them.
func (a *Analyzer) why(ctx context.Context, r api.WhyRequest) (any, error) {
	now := a.clock()
	since, until, err := r.Range(now)
	if err != nil {
		return nil, err
	}
	var answers []verdict.Answer
	for _, h := range a.all() {
		// Of a sample of packets, rules about handshakes and answers would say what is not so.
		if d, _ := a.devices.Device(h.name); h.isDevice() && (d == nil || d.Sampling > 1) {
			continue
		}
		one, err := h.examiner.Examine(ctx, verdict.Request{Filter: r.Filter, Since: since, Until: until}, now)
		if err != nil {
			return nil, err
		}
		answers = append(answers, one)
	}
	between, examined, err := a.between(ctx, r, since, until, now)
	if err != nil {
		return nil, err
	}
	return verdict.Join(a.name, answers, between, examined), nil
}

package analyze

import (
	"context"

	"github.com/waymark-net/waymark/internal/query"
)

// history answers for all hosts.
type history struct{ a *Analyzer }

func (h history) fleet() (f query.Fleet) {
	for _, one := range h.a.all() {
		f = append(f, query.Executor{Host: one.name, Sources: []query.Source{one.disk}})
	}
	return f
}

// Query implements api.History.
func (h history) Query(ctx context.Context, p query.Plan) (query.Answer, error) {
	return h.fleet().Answer(ctx, p)
}

// Explain implements api.History.
func (h history) Explain(p query.Plan) (query.Explanation, error) { return h.fleet().Explain(p) }

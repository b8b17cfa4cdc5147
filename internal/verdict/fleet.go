package verdict

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/waymark-net/waymark/internal/order"
)

// Join makes one answer of those of several hosts, each of which was examined by itself: its verdicts name the host. What
// follows from something at another host is not recognized as such.
func Join(name string, hosts []Answer) Answer {
	all := Answer{Host: name, Verdicts: []Verdict{}, Examined: []Matter{}}
	for i := range hosts {
		a := &hosts[i]
		if !a.From.IsZero() && (all.From.IsZero() || a.From.Before(all.From)) {
			all.From = a.From
		}
		if a.To.After(all.To) {
			all.To = a.To
		}
		if !a.Usual.IsZero() && (all.Usual.IsZero() || a.Usual.Before(all.Usual)) {
			all.Usual = a.Usual
		}
		all.Filter, all.More = a.Filter, all.More+a.More
		for _, v := range a.Verdicts {
			v.Where.Host = a.Host
			v.Text = a.Host + ": " + v.Text
			all.Verdicts = append(all.Verdicts, v)
		}
		for _, m := range a.Examined {
			at := slices.IndexFunc(all.Examined, func(o Matter) bool { return o.Kind == m.Kind })
			if at < 0 {
				all.Examined = append(all.Examined, m)
				continue
			}
			all.Examined[at].Count += m.Count
			all.Examined[at].Note = cmp.Or(all.Examined[at].Note, m.Note)
		}
	}
	order.By(all.Verdicts, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Text, b.Text))
	})
	if n := len(all.Verdicts) - Most; n > 0 {
		all.More += n
		all.Verdicts = all.Verdicts[:Most]
	}
	if all.From.IsZero() {
		all.Summary = fmt.Sprintf("No scan interval of %d hosts has ended in this time range: nothing was examined", len(hosts))
		return all
	}
	all.summarize()
	return all
}

package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/order"
)

// Join makes one answer of those of several hosts, each of which was examined by itself, and of what was found between them
// (Across). Verdicts name the host. Those of single hosts that follow from a link or a host between them are its consequences.
func Join(name string, hosts []Answer, between []Verdict, examined []Matter) Answer {
	all := Answer{Host: name, Verdicts: []Verdict{}, Examined: []Matter{}}
	all.Verdicts, all.More = rank(between)
	for i := range hosts {
		a := &hosts[i]
		all.From, all.Usual = earlier(all.From, a.From), earlier(all.Usual, a.Usual)
		if a.To.After(all.To) {
			all.To = a.To
		}
		all.Filter, all.More = a.Filter, all.More+a.More
		for _, v := range a.Verdicts {
			v.Where.Host = a.Host
			v.Text = a.Host + ": " + v.Text
			if !all.accountFor(&v) {
				all.Verdicts = append(all.Verdicts, v)
			}
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
	for i := range all.Verdicts {
		if v := &all.Verdicts[i]; v.scope.following > mostFollowing {
			v.Evidence = append(v.Evidence, fmt.Sprintf("%d verdicts of single hosts follow from it", v.scope.following))
		}
	}
	all.Examined = append(all.Examined, examined...)
	order.By(all.Examined, func(a, b Matter) int { return rankOf(a.Kind) - rankOf(b.Kind) })
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

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// mostFollowing is how many consequences at single hosts are listed of a verdict.
const mostFollowing = 10

// accountFor makes a verdict of a single host a consequence of what was found between hosts, if it follows from that.
func (a *Answer) accountFor(o *Verdict) bool {
	for i := range a.Verdicts {
		v := &a.Verdicts[i]
		if !v.scope.between || !v.accountsFor(o) {
			continue
		}
		v.scope.following++
		if len(v.Consequences) < mostFollowing {
			v.Consequences = append(v.Consequences, Consequence{o.Kind, o.Text})
		}
		return true
	}
	return false
}

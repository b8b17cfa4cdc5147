package verdict

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawVerdicts are verdicts about few hosts, so that some follow from others.
func drawVerdicts(t *rapid.T) (list []Verdict) {
	for i := range rapid.IntRange(0, 40).Draw(t, "verdicts") {
		r := &rules[rapid.IntRange(0, len(rules)-1).Draw(t, "rule")]
		host := netip.AddrFrom4([4]byte{10, 0, 0, rapid.ByteRange(0, 5).Draw(t, "host")})
		v := Verdict{
			Kind: r.kind, Value: rapid.Float64Range(0.001, 1000).Draw(t, "value"), Threshold: 0.001,
			Samples: rapid.Uint64Range(0, 1<<40).Draw(t, "samples"), From: time.Unix(0, 0), To: time.Unix(600, 0), Unit: "share",
		}
		v.scope = scope{
			id: fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "id")), addresses: addresses(host), located: rapid.Bool().Draw(t, "located"),
			lost: rapid.Uint64Range(0, 9).Draw(t, "lost"), places: map[[2]string]bool{},
		}
		if r.kind == GateDrops {
			v.scope.dropped = rapid.Uint64Range(1, 9).Draw(t, "dropped")
		}
		if same := slices.IndexFunc(list, func(o Verdict) bool { return o.Kind == v.Kind && o.scope.id == v.scope.id }); same >= 0 {
			v.scope = list[same].scope // the same thing in another window
		}
		v.Text = fmt.Sprint(i)
		v.Score = r.score(&v)
		list = append(list, v)
	}
	return list
}

// TestRank: the order and the number of verdicts are as documented, nothing that was found is left
// out silently, and the answer does not depend on the order in which it was found.
func TestRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := drawVerdicts(t)
		list, more := rank(slices.Clone(found))
		things := map[string]bool{}
		for _, v := range found {
			things[string(v.Kind)+v.scope.id] = true
		}
		shown, of := 0, map[Kind]int{}
		for i, v := range list {
			shown += 1 + v.Others + len(v.Consequences)
			if of[v.Kind]++; of[v.Kind] > mostOfKind {
				t.Fatalf("%d of %s", of[v.Kind], v.Kind)
			}
			if i > 0 && list[i-1].Score < v.Score {
				t.Fatalf("score %v before %v", list[i-1].Score, v.Score)
			}
			for _, c := range v.Consequences {
				if !slices.Contains(ruleOf(v.Kind).explains, c.Kind) {
					t.Fatalf("%s follows from %s", c.Kind, v.Kind)
				}
			}
		}
		if len(list) > Most || len(list) == 0 && len(found) > 0 || more > 0 && len(list) < Most {
			t.Fatalf("%d verdicts, %d more, of %d", len(list), more, len(found))
		}
		if more == 0 && shown != len(things) {
			t.Fatalf("%d things are shown of %d", shown, len(things))
		}
		if shown+more > len(things) {
			t.Fatalf("%d are shown, %d more; there are %d", shown, more, len(things))
		}
		again, _ := rank(rapid.Permutation(found).Draw(t, "order"))
		for i := range again {
			if again[i].Kind != list[i].Kind || again[i].scope.id != list[i].scope.id || again[i].Score != list[i].Score {
				t.Fatalf("in another order, verdict %d is %s %s, not %s %s", i, again[i].Kind, again[i].scope.id, list[i].Kind, list[i].scope.id)
			}
		}
	})
}

// TestScore: what exceeds its threshold by more, or concerns more, is not ranked lower; the score of
// a kind has bounds.
func TestScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &rules[rapid.IntRange(0, len(rules)-1).Draw(t, "rule")]
		draw := func() *Verdict {
			return &Verdict{Value: rapid.Float64Range(0.01, 1e9).Draw(t, "value"), Threshold: 0.01, Samples: rapid.Uint64().Draw(t, "samples")}
		}
		a, b := draw(), draw()
		if a.Value <= b.Value && a.Samples <= b.Samples && r.score(a) > r.score(b) {
			t.Fatalf("%v of %v scores %v, %v of %v %v", a.Value, a.Samples, r.score(a), b.Value, b.Samples, r.score(b))
		}
		if s := r.score(a); s < r.base || s > r.base+mostExcess+mostWeight {
			t.Fatalf("score %v, base %v", s, r.base)
		}
	})
}

// TestRules: the table is whole.
func TestRules(t *testing.T) {
	seen := map[Kind]bool{}
	for i, d := range RuleDocs() {
		if seen[d.Kind] || d.Inputs == "" || d.Threshold == "" || d.Says == "" || rules[i].what == "" || rules[i].judge == nil {
			t.Errorf("%+v", d)
		}
		seen[d.Kind] = true
	}
	for _, k := range []Kind{ServerSlow, PathDelay, PathLoss, LinkFull, Unanswered, Retransmissions, GateDrops, AgentLosses} {
		if !seen[k] {
			t.Errorf("no rule %s", k)
		}
	}
}

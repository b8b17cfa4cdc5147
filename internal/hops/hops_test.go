package hops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/hops/hopstest"
)

var began = hopstest.Began

func names(points []Point) string {
	var list []string
	for _, n := range nodes(points) {
		list = append(list, n.String())
	}
	slices.Sort(list)
	return strings.Join(list, "+")
}

// facts are the links, if they are known.
func facts(w *hopstest.World, known bool) *Facts {
	f := &Facts{}
	for _, l := range w.Links {
		if known {
			f.Links = append(f.Links, Link{End{Node{l.HostA, ""}, l.IfaceA}, End{Node{l.HostB, ""}, l.IfaceB}})
		}
	}
	return f
}

// merged sums the true links that a part has between the same hosts.
func merged(w *hopstest.World, p *Part) (sent, received uint64, n int) {
	for _, t := range w.Truth {
		if t.Kind == string(p.Kind) && slices.Contains(strings.Split(names(p.From), "+"), t.From) && slices.Contains(strings.Split(names(p.To), "+"), t.To) {
			sent, received, n = sent+t.Sent, received+t.Received, n+1
		}
	}
	return sent, received, n
}

// TestPathsOfCounts draws networks, and compares what is found with what packets did. With links, each link is found by itself.
func TestPathsOfCounts(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := hopstest.New(r)
		way, known := hopstest.Draw(r)
		w.Run(way, 4000)
		var points Points
		for key, record := range w.Records {
			if err := points.Add(key.Host, record); err != nil {
				t.Fatal(err)
			}
		}
		if problem := compareSources(t, w, way); problem != "" {
			t.Errorf("seed %d, way %+v: %s", seed, way, problem)
		}
		path := points.Find(facts(w, known))
		if problem := compare(w, &path, known); problem != "" {
			t.Errorf("seed %d, way %+v, links known: %v: %s", seed, way, known, problem)
			for i := range path.Parts {
				p := &path.Parts[i]
				t.Logf("  %s %s -> %s: %d, %d", p.Kind, names(p.From), names(p.To), p.Sent, p.Received)
			}
			for _, one := range w.Truth {
				t.Logf("  true: %+v", one)
			}
		}
	}
}

func compare(w *hopstest.World, path *Path, known bool) string {
	if len(path.Unconfirmed) > 0 {
		return "not confirmed: " + strings.Join(path.Unconfirmed, ", ")
	}
	found, reached := 0, []string{"alpha"}
	for i := range path.Parts {
		p := &path.Parts[i]
		sent, received, n := merged(w, p)
		switch {
		case n == 0:
			return fmt.Sprintf("there is no %s %s -> %s", p.Kind, names(p.From), names(p.To))
		case known && n != 1:
			return fmt.Sprintf("%s %s -> %s are %d links", p.Kind, names(p.From), names(p.To), n)
		case p.Sent != sent || p.Received != received || p.Lost != sent-received || p.Gained != 0 || p.Margin != 0:
			return fmt.Sprintf("%s %s -> %s: %d of %d, want %d of %d; margin %d", p.Kind, names(p.From), names(p.To), p.Received, p.Sent, received, sent, p.Margin)
		}
		found += n
		for name := range strings.SplitSeq(names(p.From), "+") {
			if !slices.Contains(reached, name) {
				return fmt.Sprintf("%s %s -> %s stands before packets come to %s", p.Kind, names(p.From), names(p.To), name)
			}
		}
		reached = append(reached, strings.Split(names(p.To), "+")...)
	}
	if found != len(w.Truth) {
		return fmt.Sprintf("%d of %d parts were found", found, len(w.Truth))
	}
	return ""
}

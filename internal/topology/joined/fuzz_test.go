package joined

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/waymark-net/waymark/internal/topology/timeline"
)

// FuzzJoin: whatever hosts send, joining it ends, and says nothing of hosts that there are not.
func FuzzJoin(f *testing.F) {
	for seed := range uint64(4) {
		w := draw(rand.New(rand.NewPCG(seed, 9)))
		for _, a := range w.boxes {
			for _, b := range w.boxes {
				if a != b && a.host && b.host {
					w.frame(a, b)
				}
			}
		}
		w.build()
		var list []timeline.Graph
		for _, b := range w.boxes {
			if b.host {
				list = append(list, timeline.Build(b.sources))
			}
		}
		text, err := json.Marshal(list)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`[{"nodes":[{"id":"a","kind":"interface","link":"vlan"},{"id":"b","kind":"interface","link":"vlan"}],"edges":[{"kind":"lower","from":"a","to":"b"},{"kind":"lower","from":"b","to":"a"},{"kind":"member","from":"a","to":"a"}]}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var list []timeline.Graph
		if json.Unmarshal(text, &list) != nil {
			return
		}
		var hosts []*Host
		for i := range list {
			hosts = append(hosts, Of(fmt.Sprintf("h%d", i), &list[i]))
		}
		joined := Join(hosts)
		for _, l := range joined.Links {
			if l.A.Host == l.B.Host || len(l.Found) == 0 {
				t.Errorf("%+v", l)
			}
		}
		joined.Picture()
	})
}

// BenchmarkJoin has a thousand hosts on switches, each tenth of which bridges, with 64 neighbours each.
func BenchmarkJoin(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	w := &world{rand: r}
	switches := []*box{w.add("s0", false, true)}
	for i := range 1000 {
		if i%50 == 49 {
			s := w.add(fmt.Sprintf("s%d", i), false, true)
			w.connect(switches[r.IntN(len(switches))], s)
			switches = append(switches, s)
		}
		h := w.add(fmt.Sprintf("h%d", i), true, i%10 == 0)
		w.connect(switches[len(switches)-1], h)
		h.address["own"] = netipOf(i)
	}
	for _, x := range w.boxes {
		for range 32 {
			if y := w.boxes[r.IntN(len(w.boxes))]; x.host && y.host && x != y {
				w.frame(x, y)
				w.frame(y, x)
			}
		}
	}
	hosts := w.build()
	for b.Loop() {
		t := Join(hosts)
		b.ReportMetric(float64(len(t.all)), "links")
	}
}

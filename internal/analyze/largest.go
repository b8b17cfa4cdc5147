package analyze

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/query"
)

// largest are flows that some host counted the most packets of, and how many there are at the host that has the most.
func (a *Analyzer) largest(ctx context.Context, f filter.Filter, since, until time.Time) (list []flowID, of int, err error) {
	by, err := query.ParseBy("proto,src,sport,dst,dport")
	if err != nil {
		return nil, 0, err
	}
	most := map[flowID]uint64{}
	for _, h := range a.agents() {
		// Only columns that are needed are read: a record takes a tenth of the time.
		answer, err := own{h}.Query(ctx, query.Plan{Filter: f, Since: since, Until: until, By: by, Sort: "packets", Sums: []string{"packets"}, Limit: mostCompared, Everywhere: true})
		if err != nil {
			return nil, 0, err
		}
		of = max(of, answer.Groups)
		for i := range answer.Rows {
			if w := &answer.Rows[i]; !w.Unattributed && unicast(w.Dst) {
				most[idOf(w)] = max(most[idOf(w)], w.Packets)
			}
		}
	}
	for id := range most {
		list = append(list, id)
	}
	order.By(list, func(x, y flowID) int {
		if most[x] != most[y] {
			return compareCounts(most[y], most[x])
		}
		return strings.Compare(fmt.Sprint(x), fmt.Sprint(y))
	})
	return list[:min(len(list), mostCompared)], max(of, len(list)), nil
}

func compareCounts(a, b uint64) int {
	if a < b {
		return -1
	}
	return 1
}

// unicast reports whether packets to an address have one copy.
func unicast(a netip.Addr) bool {
	b := a.As16()
	return a.IsValid() && !a.IsMulticast() && !a.IsUnspecified() && !(a.Is4() && b[12] == 255)
}

// only is a filter of the first of some flows, as many as there is space for, and of some others with their addresses and ports:
// each of these is tested by itself, once for each value in a file.
func only(list []flowID, space int) (text string, n int) {
	sets, seen := [4]string{}, map[string]bool{}
	for _, id := range list {
		next := sets
		for i, value := range []string{id.src.String(), id.dst.String(), fmt.Sprint(id.sport), fmt.Sprint(id.dport)} {
			if key := fmt.Sprint(i, " ", value); !seen[key] {
				seen[key] = true
				next[i] += ", " + value
			}
		}
		with := fmt.Sprintf("src in [%s] and dst in [%s] and sport in [%s] and dport in [%s]", next[0][2:], next[1][2:], next[2][2:], next[3][2:])
		if len(with) > space {
			return text, n
		}
		sets, text, n = next, with, n+1
	}
	return text, n
}

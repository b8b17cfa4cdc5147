package rulestest

import (
	"net/netip"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Many are n rules, which are like those of a rule set, some of them narrowed to ranges of lengths or ports, or to addresses.
// It names its sets.
func Many(t *rapid.T, rs *rules.Ruleset, n int) *rules.Ruleset {
	many := &rules.Ruleset{Sets: rs.Sets}
	next := rapid.Uint64().Draw(t, "seed") | 1
	below := func(n int) int { // one draw of rapid for each is too slow
		next ^= next << 13
		next ^= next >> 7
		next ^= next << 17
		return int(next >> 33 % uint64(n))
	}
	span := func(most int) rules.Ranges {
		from := below(most)
		return rules.Ranges{List: []rules.Range{{First: uint16(from), Last: uint16(min(most, from+below(most)))}}}
	}
	for range n {
		r := *rs.Rules[below(len(rs.Rules))]
		r.ID = lastID.Add(1)
		m := &r.Match
		switch of := below(6); {
		case of == 0 && free(&m.Length):
			m.Length = span(1500)
		case of == 1 && free(&m.Dport):
			m.Dport = span(65535)
		case of == 2 && len(m.Src.Prefixes)+len(m.Src.Sets) == 0:
			a := netip.AddrFrom4([4]byte{byte(below(256)), byte(below(256)), byte(below(256)), 0})
			m.Src.Prefixes = []netip.Prefix{netip.PrefixFrom(a, below(25)).Masked()}
		}
		many.Rules = append(many.Rules, &r)
	}
	return many
}

func free(r *rules.Ranges) bool { return len(r.List)+len(r.Sets) == 0 }

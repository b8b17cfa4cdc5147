package service

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// example is the least that marks something.
const example = `pdm:
  policies: [{to: "2001:db8::/32", proto: tcp, ports: [443], for: 1h}]
`

// whyNoDelays finds the first reason in the marking, and its remedy; empty:
// there is none.
func whyNoDelays(s *obs.Status) string {
	p := StatusOf(s)
	switch {
	case p == nil || len(p.Policies) == 0:
		return "no flow is marked: marking is off. Name the flows to mark in the configuration of both ends, and reload it (systemctl reload waymark, or SIGHUP):\n" +
			strings.TrimSuffix(term.Indent(example, "  "), "\n")
	case !anyInForce(p, s.Now):
		return fmt.Sprintf("no flow is marked: every policy has expired; kill -HUP %d renews them", s.PID)
	case p.Marked == 0 && p.Read == 0:
		return fmt.Sprintf("no flow is marked: no packet matches a policy (%s)%s", policyTexts(p), passedText(p))
	case p.Read == 0:
		return fmt.Sprintf("%s sent with a mark, none received with one: does the other end mark packets, too?%s", term.Number(p.Marked, "packets"), passedText(p))
	}
	return ""
}

func anyInForce(p *Status, now time.Time) bool {
	return slices.ContainsFunc(p.Policies, func(one Policy) bool { return one.InForce(now) })
}

func policyTexts(p *Status) string {
	var texts []string
	for _, one := range p.Policies {
		texts = append(texts, one.Text)
	}
	return strings.Join(texts, "; ")
}

// passedText names the reason that most packets were passed over for.
func passedText(p *Status) string {
	sums := map[string]uint64{}
	most := ""
	for _, one := range p.Passed {
		sums[one.Reason] += one.Packets
		if n := sums[one.Reason]; n > sums[most] || n == sums[most] && one.Reason < most {
			most = one.Reason
		}
	}
	if most == "" {
		return ""
	}
	return fmt.Sprintf("\n%s went unmarked or unread with reason %s; waymark status lists all reasons", term.Number(sums[most], "packets"), most)
}

package service

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// writeText shows what marks did; nothing where nothing is marked.
func writeText(w io.Writer, s *obs.Status) error {
	p := StatusOf(s)
	if p == nil {
		return nil
	}
	t := &term.Table{Columns: []term.Column{{Title: "PDM POLICY", Least: 12}, {Title: "ENDS IN", Right: true}}}
	for _, one := range p.Policies {
		ends := "ended"
		if one.InForce(s.Now) {
			ends = term.Duration(one.Until.Sub(s.Now).Round(time.Second))
		}
		t.Add(one.Text, ends)
	}
	if err := term.Section(w, t); err != nil {
		return err
	}
	if err := term.Heading(w, "PDM %s  %s marked, %s read, %s stripped; states %s of %s, %sB; %s created, %s expired, %s evicted, %s refused",
		p.Mode, term.Count(p.Marked), term.Count(p.Read), term.Count(p.Stripped),
		term.Count(p.Entries), term.Count(p.MaxEntries), term.Count(p.MemoryBytes),
		term.Count(p.Created), term.Count(p.Expired), term.Count(p.Evicted), term.Count(p.Refused)); err != nil {
		return err
	}
	if p.Alerts > 0 {
		if _, err := fmt.Fprintf(w, "more flows than pdm.state allows, in %s: name fewer flows in pdm.policies, or raise pdm.state.max_entries\n", term.Number(p.Alerts, "scan intervals")); err != nil {
			return err
		}
	}
	if p.Fallbacks > 0 {
		if _, err := fmt.Fprintf(w, "marked packets of %s did not arrive, so the flows continue unmarked; packets to %s stay unmarked for ten minutes\n",
			term.Number(p.Fallbacks, "flows"), term.Number(p.Blocked, "destinations")); err != nil {
			return err
		}
	}
	if p.Narrowed > 0 {
		if _, err := fmt.Fprintf(w, "%s with a smaller MTU than expected: packets above it go unmarked for ten minutes\n", term.Number(p.Narrowed, "paths")); err != nil {
			return err
		}
	}
	if err := writeReduced(w, p); err != nil {
		return err
	}
	return writePassed(w, p)
}

// writeReduced lists the settings that are lower while packets are marked.
func writeReduced(w io.Writer, p *Status) error {
	t := &term.Table{Columns: []term.Column{{Title: "REDUCED FOR MARKS"}, {Title: "SETTING"}, {Title: "FROM", Right: true}, {Title: "TO", Right: true}}}
	for _, r := range p.Reduced {
		from := fmt.Sprint(r.From)
		if r.From == 0 { // a route without an MTU of its own
			from = "-"
		}
		t.Add(obs.Place(r.Netns, r.Iface), strings.TrimSpace(r.Setting+" "+r.Route), from, fmt.Sprint(r.To))
	}
	return term.Section(w, t)
}

func writePassed(w io.Writer, p *Status) error {
	t := &term.Table{Columns: []term.Column{{Title: "PDM PASSED"}, {Title: "DIR"}, {Title: "REASON"}, {Title: "PACKETS", Right: true}}}
	for _, one := range p.Passed {
		t.Add(obs.Place(one.Netns, one.Iface), term.ShortDirection(one.Direction), one.Reason, term.Count(one.Packets))
	}
	return term.Section(w, t)
}

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/waymark-net/waymark/internal/verdict"
)

// writeVerdicts writes the page about the rules of waymark why.
func writeVerdicts(w io.Writer) error {
	p := newPage("Verdicts", "`waymark why` and `/api/v1/why` judge a time range by these rules, and also its newest part by itself: two scan intervals, or 2 s if\n"+
		"these are shorter. The thresholds are keys of the section [`why`](configuration.md#why) of the configuration. [Why is it slow?](../how-to/why.md) shows the use.")
	var rows [][]string
	for _, r := range verdict.RuleDocs() {
		rows = append(rows, []string{code(string(r.Kind)), upper(r.Inputs), upper(r.Threshold), upper(r.Says)})
	}
	p.table("Kind|Inputs|Threshold|What a verdict says", rows)
	p.heading(2, "Ranking")
	p.WriteString("\n" + verdict.Ranking + "\n")
	rows = nil
	for _, r := range verdict.RuleDocs() {
		var kinds []string
		for _, k := range r.Explains {
			kinds = append(kinds, code(string(k)))
		}
		rows = append(rows, []string{code(string(r.Kind)), fmt.Sprint(r.Base), strings.Join(kinds, ", ")})
	}
	p.table("Kind|Base|Accounts for", rows)
	return p.writeTo(w)
}

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/query"
)

func writeQueries(w io.Writer) error {
	p := newPage("Filters and keys", "What `waymark flows`, `waymark delays`, `waymark top` and `/api/v1/flows` understand. The first half is also waymark-filter(7).")
	p.heading(2, "Filters")
	p.WriteString("\n" + filterLead + "\n")
	var examples [][]string
	for _, e := range filterGuide {
		examples = append(examples, []string{code(e.text), upper(e.means)})
	}
	p.table("Filter|Meaning", examples)
	p.WriteString("\n" + filterSums + "\n\n" + filterNames + "\n")
	p.heading(2, "Tests without a value")
	fmt.Fprintf(p, "\n`%s`.\n", strings.Join(filter.Shorthands(), "`, `"))
	p.heading(2, "Fields of a filter")
	var fields [][]string
	for _, f := range filter.Fields() {
		also := make([]string, len(f.Aliases))
		for i, a := range f.Aliases {
			also[i] = code(a)
		}
		of := "record"
		if f.Sum {
			of = "row"
		}
		fields = append(fields, []string{code(f.Name), strings.Join(also, ", "), upper(f.Doc), f.Example, of})
	}
	p.table("Field|Also|Meaning|Values|Tests the", fields)

	var keys [][]string
	for _, k := range query.KeyDocs() {
		keys = append(keys, []string{code(k.Name), upper(k.Doc)})
	}
	p.heading(2, "Keys to group by")
	p.WriteString("\nSeveral are joined with commas. A packet that is seen on several interfaces counts in one row, unless rows are of an interface or direction: see [Measure a router](../how-to/router.md).\n")
	p.table("Key|Meaning", keys)
	p.heading(2, "Orders")
	fmt.Fprintf(p, "\n`%s`, or one of the keys to group by. Sums come with the largest first, keys with the smallest.\n", strings.Join(query.SortNames(), "`, `"))
	return p.writeTo(w)
}

// writeFilterMan writes waymark-filter(7).
func writeFilterMan(w io.Writer) error {
	plain := func(s string) string { return strings.ReplaceAll(s, "`", "") }
	var b strings.Builder
	b.WriteString(".TH WAYMARK\\-FILTER 7 \"\" Waymark \"Waymark manual\"\n")
	b.WriteString(".SH NAME\nwaymark\\-filter \\- which flows waymark flows, delays and top show\n.SH DESCRIPTION\n")
	manText(&b, plain(filterLead))
	b.WriteString(".SH EXAMPLES\n")
	for _, e := range filterGuide {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(e.text), roff.Replace(upper(e.means)))
	}
	manText(&b, plain(filterSums))
	manText(&b, plain(filterNames))
	b.WriteString(".SH FIELDS\n")
	for _, f := range filter.Fields() {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s.\n", roff.Replace(strings.Join(append([]string{f.Name}, f.Aliases...), ", ")), roff.Replace(upper(f.Doc)))
		if f.Example != f.Name {
			fmt.Fprintf(&b, "Values: %s\n", roff.Replace(f.Example))
		}
	}
	b.WriteString(".SH TESTS WITHOUT A VALUE\n")
	manText(&b, strings.Join(filter.Shorthands(), ", "))
	b.WriteString(".SH SEE ALSO\n.BR waymark\\-flows (1)\n.BR waymark\\-delays (1)\n.BR waymark\\-top (1)\n")
	_, err := io.WriteString(w, b.String())
	return err
}

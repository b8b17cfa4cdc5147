package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/store"
)

const filterLead = "A filter is made of tests joined with `and` (`&&`), `or` (`||`), `not` (`!`) and parentheses; `not` binds tightest, then `and`.\n" +
	"A test is a field, an operator (`=` when left out, `!=`, and for numbers `<` `<=` `>` `>=`) and a value, a range or a list. Most\n" +
	"expressions of tcpdump work unchanged. Keywords, fields and units may be written in any case."

const filterNames = "Names of hosts are resolved when the command starts, by `/etc/hosts` and DNS, within 3 seconds; the addresses are reported on\n" +
	"stderr. The agent resolves nothing: `/api/v1/flows` accepts addresses only. Names of services are built in, the rest is looked up\n" +
	"in `/etc/services` by the command line."

const filterSums = "Tests of sums (the packets, bytes, round trips and delays in the list of fields) are of the rows that are shown: `bytes > 1MB`\n" +
	"with `--by conversation` selects conversations of more than 1 MB, over all intervals asked for; in `top` and with `--follow`, of\n" +
	"more than 1 MB in an interval. All other tests select the records that are added to rows. The two are joined with `and`; an\n" +
	"`or` or `not` of both, such as `udp or bytes > 1MB`, is an error unless rows are flows. The filter of an exporter tests each record."

// filterGuide shows the language by example.
var filterGuide = []struct{ text, means string }{
	{"tcp dst port 443", "a protocol or IP version may stand in front of a field"},
	{"port 443 or 8080", "a value without a field belongs to the field before it"},
	{"port in [80, https, 8000-8099]", "a list; port 80,https,8000-8099 is the same, and port not in [80] an exclusion"},
	{"portrange 8000-8099", "a range"},
	{"port https", "ports may be names of services"},
	{"10.0.4.2", "an address alone: host 10.0.4.2"},
	{"src net 10/8 and not dst net 2001:db8::/32", "networks; zeros at the end of an IPv4 prefix may be left out"},
	{"host localhost", "the name of a host stands for all its addresses"},
	{"tcp_flags syn and not tcp_flags ack", "TCP flags seen in any packet of the flow"},
	{"tcp.flags.syn and tcp.port == 443", "names of Wireshark, where tcpdump has the same field"},
	{"bytes > 1MB and packets < 10k", "units are k, M, G, T (powers of 1000) and Ki, Mi, Gi, Ti (of 1024); B may follow a number of bytes"},
	{"rtt > 50ms", "durations have a unit: ns, us, ms, s, m, h, d or w"},
	{"iface veth* and netns blue", "names of interfaces and namespaces are patterns of *, ? and [ab]"},
	{`iface "and"`, "quotes around a name that would be read otherwise"},
}

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
	for _, k := range store.KeyDocs() {
		keys = append(keys, []string{code(k.Name), upper(k.Doc)})
	}
	p.heading(2, "Keys to group by")
	p.WriteString("\nSeveral are joined with commas. A packet that is seen on several interfaces counts in one row, unless rows are of an interface or direction: see [Measure a router](../how-to/router.md).\n")
	p.table("Key|Meaning", keys)
	p.heading(2, "Orders")
	fmt.Fprintf(p, "\n`%s`, or one of the keys to group by. Sums come with the largest first, keys with the smallest.\n", strings.Join(store.SortNames(), "`, `"))
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

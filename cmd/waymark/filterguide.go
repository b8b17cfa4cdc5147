package main

// The language of filters, for help and reference.

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

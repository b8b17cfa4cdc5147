package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waymark-net/waymark/internal/analyze"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/ipfix"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/stage/list"
)

// page gathers a Markdown page.
type page struct{ strings.Builder }

func newPage(title, lead string) *page {
	p := &page{}
	fmt.Fprintf(p, "<!-- Written by `make docs`. -->\n# %s\n\n%s\n", title, lead)
	return p
}

func (p *page) heading(level int, text string) {
	fmt.Fprintf(p, "\n%s %s\n", strings.Repeat("#", level), text)
}

// table writes a header and rows; columns are divided by |.
func (p *page) table(header string, rows [][]string) {
	fmt.Fprintf(p, "\n| %s |\n|%s\n", strings.ReplaceAll(header, "|", " | "), strings.Repeat("---|", strings.Count(header, "|")+1))
	for _, row := range rows {
		for _, cell := range row {
			p.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		p.WriteString("|\n")
	}
}

func (p *page) writeTo(w io.Writer) error {
	_, err := io.WriteString(w, p.String())
	return err
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func writeCLI(w io.Writer, root *cobra.Command) error {
	p := newPage("Command line", "stdout is data, stderr is logs and progress. Verbs that ask a running agent take `--socket PATH`.\n"+
		"The same text is in the man pages alongside this one.")
	var codes [][]string
	for _, e := range command.ExitCodes {
		codes = append(codes, []string{fmt.Sprint(e.Code), e.Doc})
	}
	p.table("Exit code|Meaning", codes)
	for _, cmd := range documented(root) {
		p.heading(2, cmd.CommandPath())
		fmt.Fprintf(p, "\n%s\n\n```\n%s\n```\n", sentence(cmd.Short), useLine(cmd))
		if cmd.Long != "" {
			p.WriteString("\n" + markdownText(cmd.Long))
		}
		if names := command.Verbs(cmd); len(names) > 0 {
			fmt.Fprintf(p, "\nCommands: `%s`.\n", strings.Join(names, "`, `"))
		}
		if cmd.Example != "" {
			fmt.Fprintf(p, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
		}
		var flags [][]string
		eachFlag(cmd.NonInheritedFlags(), func(f *pflag.Flag, argument, usage, def string) {
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			flags = append(flags, []string{code(strings.TrimSpace(name + " " + argument)), usage, code(def)})
		})
		if len(flags) > 0 {
			p.table("Flag|Meaning|Default", flags)
		}
	}
	return p.writeTo(w)
}

// sentence ends with a full stop, or with what it ends with already.
func sentence(s string) string {
	if strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// markdownText makes lines that are indented a block that stands as it is.
func markdownText(text string) string {
	var b strings.Builder
	literal := false
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "  ")
		if indented != literal {
			b.WriteString("```\n")
			literal = indented
		}
		b.WriteString(strings.TrimPrefix(line, "  ") + "\n")
	}
	if literal {
		b.WriteString("```\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func writeConfiguration(w io.Writer) error {
	p := newPage("Configuration", "`waymark run --config FILE` reads YAML. Every key has a default; `waymark config dump` shows the effective values and where they were\n"+
		"set, `waymark config check FILE` names every problem with line and column. Variables override the file (an empty one\n"+
		"counts as not set), flags override both; `--set KEY=VALUE` sets any key that has a variable.\n\n"+
		"Durations are written like `500ms`, `10s` or `1m30s`; sizes in bytes or like `64KiB` and `16MiB`; a list in a variable or flag\n"+
		"with commas or as YAML. SIGHUP (`systemctl reload waymark`) applies changes of the keys marked *Reload* without losing a\n"+
		"packet, and the log names those that need a restart. Editors complete and check with [configuration.schema.json](configuration.schema.json).")
	for _, s := range config.Reference() {
		name := s.Name
		if name == "" {
			name = "Top level"
		} else {
			name = code(name)
		}
		p.heading(2, name)
		fmt.Fprintf(p, "\n%s.\n", upper(s.Doc))
		var rows [][]string
		for _, k := range s.Keys {
			reload := ""
			if k.Reload {
				reload = "yes"
			}
			rows = append(rows, []string{code(k.Name), k.Values(), code(k.Default), upper(k.Doc), code(k.Env), reload})
		}
		p.table("Key|Values|Default|Meaning|Variable|Reload", rows)
	}
	p.heading(2, "The defaults as a file")
	p.WriteString("\n```yaml\n")
	if err := config.Dump(p, config.Default(), nil); err != nil {
		return err
	}
	p.WriteString("```\n")
	return p.writeTo(w)
}

// upper begins a sentence with a capital, unless its first word is a name.
func upper(s string) string {
	word, _, _ := strings.Cut(s, " ")
	if s == "" || strings.ContainsAny(word, "/:_") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func writeAPI(w io.Writer) error {
	p := newPage("API", "HTTP over the unix socket `api.socket` and, where `api.listen` is set, over loopback. It answers GET and HEAD, with JSON.\n"+
		"A refusal is `{\"what\": …, \"how\": …}` with a status of 400 and more.\n\n"+
		"```sh\ncurl --unix-socket /run/waymark/agent.sock 'http://waymark/api/v1/flows?by=src/24,dport&limit=5'\n```")
	var paths [][]string
	for _, e := range slices.Concat(api.Endpoints(), list.Endpoints()) {
		paths = append(paths, []string{code(e.Path), e.Doc})
	}
	p.table("Path|Answer", paths)
	p.heading(2, "Parameters of /api/v1/flows")
	var parameters [][]string
	for _, q := range api.Parameters() {
		parameters = append(parameters, []string{code(q.Name), q.Doc})
	}
	p.table("Parameter|Meaning", parameters)
	p.WriteString("\nRows by `flow` are [flow records](record.md) with `records`, the number of records merged; other rows have their keys and sums.\n" +
		"What was turned round by `conversation`, `service`, `pair` or a peer stands in `back`, too. CSV has the same fields, inner ones with a dot.\n")
	p.heading(2, "Parameters of /api/v1/why")
	parameters = nil
	for _, q := range api.WhyParameters() {
		parameters = append(parameters, []string{code(q.Name), q.Doc})
	}
	p.table("Parameter|Meaning", parameters)
	p.WriteString("\n[Verdicts](verdicts.md) has the rules. Each verdict has `kind`, `severity`, `score`, `text`, the time (`from`, `to`), what was measured\n" +
		"(`measure`, `unit`, `value`, `threshold`, `usual`, `samples`), the place (`where`, `flow`), a `command` that shows the rows, and `consequences`;\n" +
		"`examined` has what each rule looked at.\n")
	p.heading(2, "Fields that only rows have")
	var extras [][]string
	for _, f := range api.ExtraFields() {
		extras = append(extras, []string{code(f.Name), upper(f.Doc)})
	}
	p.table("Field|Meaning", extras)
	return p.writeTo(w)
}

func writeRecord(w io.Writer) error {
	p := newPage("Flow record", "One flow in one direction on one interface over one interval: a line of the JSON lines exporter, and a row by flow of the API.\n"+
		"Counters are deltas. [record.schema.json](record.schema.json) says the same to programs; [flow.proto](flow.proto) is the record in Kafka.")
	var rows, columns [][]string
	for i := range flow.Fields {
		f := &flow.Fields[i]
		kind := map[flow.Kind]string{
			flow.Text: "text", flow.Address: "address", flow.Time: "time, RFC 3339", flow.Number: "number", flow.Protocol: "number", flow.Bits: "number", flow.Flag: "true or false",
			flow.Signed: "number, also below 0,", flow.Pairs: "pairs of numbers",
			flow.Name: strings.Join(f.Choices(), ", "),
		}[f.Kind]
		if f.Unit != "" {
			kind += " of " + f.Unit
		}
		elements := make([]string, len(f.IPFIX))
		for n, e := range f.IPFIX {
			elements[n] = code(e.Name)
		}
		rows = append(rows, []string{code(f.Name), kind, upper(f.Doc), strings.Join(elements, ", ")})
		columns = append(columns, []string{code(f.Name), mergeNames[f.Merge], code(f.ClickHouse()), code(f.Parquet())})
	}
	p.table("Field|Values|Meaning|IPFIX", rows)
	p.heading(2, "Rows and databases")
	p.WriteString("\nWhat `waymark flows --by` keeps of the records of a row, and the types of columns for who stores records elsewhere. A value that is\n" +
		"missing is not 0: its column is nullable in ClickHouse and optional in Parquet.\n")
	p.table("Field|In a row|ClickHouse|Parquet", columns)
	return p.writeTo(w)
}

// mergeNames say what a row has of its records.
var mergeNames = map[flow.Merge]string{
	flow.MergeKey: "key", flow.MergeFirst: "that of the first, by flow only", flow.MergeSum: "sum", flow.MergeOr: "or of the bits",
	flow.MergeMin: "smallest", flow.MergeMax: "largest", flow.MergeMean: "mean of those that have it",
	flow.MergeAgree: "what all have", flow.MergeDelays: "of all delays",
}

func writeIPFIX(w io.Writer) error {
	p := newPage("IPFIX", fmt.Sprintf("The information elements that the exporter sends (RFC 7011). Waymark's own stand under the enterprise number\n"+
		"`export[].ipfix.enterprise`, which is %d (RFC 5612) by default; options records report their names and types (RFC 5610).", ipfix.DocumentationPEN))
	var rows [][]string
	for _, e := range ipfix.Elements() {
		enterprise, length := "IANA", fmt.Sprint(e.Len)
		if e.Own {
			enterprise = "Waymark"
		}
		if e.Len == 65535 {
			length = "variable"
		}
		rows = append(rows, []string{code(e.Name), enterprise, fmt.Sprint(e.ID), e.Type, length, upper(e.Doc)})
	}
	p.table("Element|Registry|Id|Type|Octets|Meaning", rows)
	return p.writeTo(w)
}

func writeMetrics(w io.Writer) error {
	p := newPage("Metrics", "What `/metrics` reports besides the Go runtime and the process. No label is ever an address.")
	var rows [][]string
	for _, m := range append(prometheus.Metrics(list.Metrics()), analyze.Metrics()...) {
		labels := make([]string, len(m.Labels))
		for i, l := range m.Labels {
			labels[i] = code(l)
		}
		rows = append(rows, []string{code(m.Name), string(m.Type), strings.Join(labels, ", "), m.Help})
	}
	p.table("Metric|Type|Labels|Meaning", rows)
	return p.writeTo(w)
}

func writeKernel(w io.Writer) error {
	p := newPage("Kernel features", "What the eBPF probe takes from the kernel, and what is done where it is missing. `waymark doctor` asks the kernel at hand.")
	var rows [][]string
	for _, f := range kernel.Features() {
		without := upper(f.Without)
		if f.Required() {
			without = "The eBPF probe cannot run: `probe: afpacket`"
		}
		rows = append(rows, []string{code(f.Name), f.Since, upper(f.Purpose), without})
	}
	p.table("Feature|Since Linux|Used for|Without it", rows)
	return p.writeTo(w)
}

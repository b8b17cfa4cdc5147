package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waymark-net/waymark/internal/command"
)

// roff escapes what troff reads as more than a letter (groff_char(7)).
var roff = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`)

// writeMan writes a page of section 1 (man-pages(7)).
func writeMan(w io.Writer, cmd *cobra.Command) error {
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" Waymark \"Waymark manual\"\n", strings.ToUpper(roff.Replace(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff.Replace(name), roff.Replace(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff.Replace(useLine(cmd)))
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, long(cmd))
	if verbs := command.Verbs(cmd); len(verbs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff.Replace(sub.Name()), roff.Replace(sub.Short))
			}
		}
	}
	manFlags(&b, cmd)
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		manText(&b, cmd.Example)
	}
	b.WriteString(".SH EXIT STATUS\n")
	for _, e := range command.ExitCodes {
		fmt.Fprintf(&b, ".TP\n.B %d\n%s\n", e.Code, roff.Replace(e.Doc))
	}
	if also := seeAlso(cmd); len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, "\n"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// manText writes paragraphs; lines that are indented stand as they are.
func manText(b *strings.Builder, text string) {
	literal := false
	b.WriteString(".PP\n")
	for line := range strings.SplitSeq(text, "\n") {
		indented := strings.HasPrefix(line, "  ")
		switch {
		case indented && !literal:
			b.WriteString(".RS\n.nf\n")
		case !indented && literal:
			b.WriteString(".fi\n.RE\n")
		}
		literal = indented
		line = strings.TrimPrefix(line, "  ")
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		if line[0] == '.' || line[0] == '\'' {
			b.WriteString(`\&`)
		}
		b.WriteString(roff.Replace(line) + "\n")
	}
	if literal {
		b.WriteString(".fi\n.RE\n")
	}
}

func manFlags(b *strings.Builder, cmd *cobra.Command) {
	flags := cmd.NonInheritedFlags()
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH OPTIONS\n")
	eachFlag(flags, func(f *pflag.Flag, argument, usage, def string) {
		b.WriteString(".TP\n\\fB")
		if f.Shorthand != "" {
			b.WriteString(`\-` + f.Shorthand + `\fR, \fB`)
		}
		b.WriteString(`\-\-` + roff.Replace(f.Name) + `\fR`)
		if argument != "" {
			b.WriteString(` \fI` + roff.Replace(argument) + `\fR`)
		}
		b.WriteString("\n" + roff.Replace(usage))
		if def != "" {
			b.WriteString(" (default: " + roff.Replace(def) + ")")
		}
		b.WriteString("\n")
	})
}

func seeAlso(cmd *cobra.Command) []string {
	var pages []string
	page := func(c *cobra.Command) {
		pages = append(pages, `.BR `+roff.Replace(strings.ReplaceAll(c.CommandPath(), " ", "-"))+` (1)`)
	}
	if cmd.HasParent() {
		page(cmd.Parent())
	}
	for _, sub := range cmd.Commands() {
		if len(documented(sub)) > 0 {
			page(sub)
		}
	}
	if cmd.Flags().Lookup("filter") != nil {
		pages = append(pages, `.BR waymark\-filter (7)`)
	}
	return pages
}

// eachFlag calls show for every flag that users meet, with the name of its
// argument (none: a switch), its usage, and its default where there is one.
func eachFlag(flags *pflag.FlagSet, show func(f *pflag.Flag, argument, usage, def string)) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		argument, usage := pflag.UnquoteUsage(f)
		if name, ok := command.ArgumentNames[argument]; ok {
			argument = name
		}
		def := f.DefValue
		switch def {
		case "0", "0s", "false", "[]":
			def = ""
		}
		show(f, argument, usage, def)
	})
}

// useLine is how the command is called.
func useLine(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() && !strings.Contains(cmd.Use, " ") { // it does nothing itself
		return cmd.CommandPath() + " COMMAND"
	}
	return cmd.UseLine()
}

func long(cmd *cobra.Command) string {
	if cmd.Long == "" {
		return cmd.Short + "."
	}
	return cmd.Long
}

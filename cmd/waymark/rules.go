package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/term"
)

func newRulesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Check, apply and list packet rules, ban sources, and show which rule decides about a packet",
	}
	cmd.AddCommand(newRulesCheckCommand(), newRulesApplyCommand(), newRulesListCommand(), newRulesAddCommand(), newRulesDelCommand(),
		newRulesBanCommand(), newRulesUnbanCommand(), newRulesBansCommand(), newRulesMonitorCommand(), newRulesExplainCommand(), newRulesImportCommand())
	return cmd
}

// outputRules is the canonical form of a rule file.
const outputRules = "rules"

func newRulesCheckCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a rule file and report every error in it",
		Long: `Check reads a rule file and the block lists that it names. It reports every error with
file, line, column and what is expected instead; the exit code is then 2. It warns of
rules that never match, of those that an earlier rule decides before, of allow lists
behind ban lists and of sets that no rule names. -o rules prints the file in canonical
form. FILE - is stdin. Nothing is applied.`,
		Example: `  waymark rules check /etc/waymark/rules
  waymark rules check -o rules /etc/waymark/rules`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkRules(args[0], out.format, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	out.register(cmd, outputTable, outputJSON, outputRules)
	return cmd
}

func checkRules(name, format string, stdin io.Reader, stdout, stderr io.Writer) error {
	rs, warnings, err := readRules(name, stdin)
	if format == outputJSON {
		return checkJSON(stdout, rs, warnings, err)
	}
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if _, err := fmt.Fprintf(stderr, "waymark: %s\n", w); err != nil {
			return err
		}
	}
	if format == outputRules {
		_, err := io.WriteString(stdout, rs.String())
		return err
	}
	members := 0
	for _, s := range rs.Sets {
		members += len(s.Prefixes) + len(s.Ports)
	}
	_, err = fmt.Fprintf(stdout, "%s: no errors; %s, %s with %s\n", name, term.Number(uint64(len(rs.Rules)), "rules"),
		term.Number(uint64(len(rs.Sets)), "sets"), term.Number(uint64(members), "members"))
	return err
}

// readRules reads a rule file; - is stdin.
func readRules(name string, stdin io.Reader) (*rules.Ruleset, []rules.Warning, error) {
	text, err := readText(name, stdin)
	if err != nil {
		return nil, nil, fmt.Errorf("read rules: %w", err)
	}
	rs, warnings, err := rules.Parse(name, text, rules.Options{Now: time.Now()})
	if err != nil {
		return nil, nil, usageError{err}
	}
	return rs, warnings, nil
}

func readText(name string, stdin io.Reader) (string, error) {
	if name == "-" {
		text, err := io.ReadAll(stdin)
		return string(text), err
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// ruleJSON is a rule as commands show it.
type ruleJSON struct {
	ID   uint32 `json:"id"`
	Text string `json:"text"`
	Line int    `json:"line"`
}

func ruleOf(r *rules.Rule) ruleJSON { return ruleJSON{r.ID, r.Text, r.Pos.Line} }

type setJSON struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
	File    string `json:"file,omitempty"`
}

type findingJSON struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column,omitempty"`
	What   string `json:"what"`
}

func findingOf(p rules.Position, what string) findingJSON {
	return findingJSON{p.File, p.Line, p.Column, what}
}

// checkJSON writes what check found. Errors are in the object, and not on stderr.
func checkJSON(w io.Writer, rs *rules.Ruleset, warnings []rules.Warning, err error) error {
	answer := struct {
		Rules    []ruleJSON    `json:"rules"`
		Sets     []setJSON     `json:"sets"`
		Warnings []findingJSON `json:"warnings"`
		Errors   []findingJSON `json:"errors"`
	}{[]ruleJSON{}, []setJSON{}, []findingJSON{}, []findingJSON{}}
	var errs rules.Errors
	if err != nil && !errors.As(err, &errs) {
		return err
	}
	for _, e := range errs {
		answer.Errors = append(answer.Errors, findingOf(e.Pos, e.What))
	}
	for _, one := range warnings {
		answer.Warnings = append(answer.Warnings, findingOf(one.Pos, one.What))
	}
	if rs != nil {
		for _, s := range rs.Sets {
			answer.Sets = append(answer.Sets, setJSON{s.Name, len(s.Prefixes) + len(s.Ports), s.File})
		}
		for _, r := range rs.Rules {
			answer.Rules = append(answer.Rules, ruleOf(r))
		}
	}
	if err := writeRulesJSON(w, answer); err != nil {
		return err
	}
	if len(errs) > 0 {
		return usageError{errReported}
	}
	return nil
}

func writeRulesJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(answer)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/gate"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/term"
)

// outputRules is the canonical form of a rule file.
const outputRules = "rules"

// rulesCheck is one check of a rule file.
type rulesCheck struct {
	out    outputFlag
	config string // file; empty: that of the running agent, or the defaults
}

func newRulesCheckCommand() *cobra.Command {
	c := &rulesCheck{}
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a rule file and report every error in it",
		Long: `Check reads a rule file and the block lists that it names. It reports every error with
file, line, column and what is expected instead; the exit code is then 2. It warns of
rules that never match, of those that an earlier rule decides before, of allow lists
behind ban lists, of sets that no rule names, and of a rule that would drop the connection
over which you are logged in (SSH). -o rules prints the file in canonical form. FILE - is
stdin. Nothing is applied.

Check also reports how much of the agent's tables the rules take, and an error if they do
not fit. The sizes are those of the running agent, or of a configuration (--config), or
without both the defaults.`,
		Example: `  waymark rules check /etc/waymark/rules
  waymark rules check --config /etc/waymark/waymark.yaml /etc/waymark/rules
  waymark rules check -o rules /etc/waymark/rules`,
		Args: cobra.ExactArgs(1),
		RunE: c.run,
	}
	cmd.Flags().StringVarP(&c.config, "config", "c", "", "take the sizes of the tables from YAML `FILE`")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	c.out.register(cmd, outputTable, outputJSON, outputRules)
	return cmd
}

func (c *rulesCheck) run(cmd *cobra.Command, args []string) error {
	rs, warnings, err := readRules(args[0], cmd.InOrStdin())
	var use gate.Use
	whose := ""
	if err == nil {
		warnings = append(warnings, cutOff(rs)...)
		use, whose, err = c.fit(cmd.Context(), args[0], rs)
	}
	stdout := cmd.OutOrStdout()
	if c.out.format == outputJSON {
		return checkJSON(stdout, rs, warnings, use, err)
	}
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if _, err := fmt.Fprintf(cmd.ErrOrStderr(), "waymark: %s\n", w); err != nil {
			return err
		}
	}
	if c.out.format == outputRules {
		_, err := io.WriteString(stdout, rs.String())
		return err
	}
	members := 0
	for _, s := range rs.Sets {
		members += len(s.Prefixes) + len(s.Ports)
	}
	_, err = fmt.Fprintf(stdout, "%s: no errors; %s, %s with %s\nthey take %d of %d rules, %.1f of %.1fMiB for addresses and conditions, and %d of %d rows, %s\n", args[0],
		term.Number(uint64(len(rs.Rules)), "rules"), term.Number(uint64(len(rs.Sets)), "sets"), term.Number(uint64(members), "members"),
		use.Rules, use.MaxRules, mega(use.Memory), mega(use.MaxMemory), use.Rows, use.MaxRows, whose)
	return err
}

// cutOff are rules that would drop the user's own connection. Those who apply a file are asked for --force; a reload cannot ask.
func cutOff(rs *rules.Ruleset) (list []rules.Warning) {
	var connections []rules.Connection
	for _, c := range operatorConnections() {
		connections = append(connections, rules.Connection{Remote: c.Remote, Local: c.Local})
	}
	for _, conflict := range rs.ControlConflicts(connections, rules.State{Now: time.Now()}) {
		list = append(list, conflict.Warning())
	}
	return list
}

func mega(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// fit compares rules with the tables of an agent.
func (c *rulesCheck) fit(ctx context.Context, name string, rs *rules.Ruleset) (use gate.Use, whose string, err error) {
	cfg, whose, err := configurationOf(ctx, c.config)
	if err != nil {
		return use, whose, err
	}
	if use, err = service.Fit(&cfg, rs); err != nil {
		err = command.UsageError{Err: rules.Errors{{Pos: rules.Position{File: name}, What: fmt.Sprintf("%v (%s)", err, whose)}}}
	}
	return use, whose, err
}

// packagedConfiguration is the file of the agent that systemd starts.
const packagedConfiguration = "/etc/waymark/waymark.yaml"

// configurationOf is that of an agent, and whose it is: by a file, if one is named, else of the agent that runs, or would.
func configurationOf(ctx context.Context, file string) (cfg config.Config, whose string, err error) {
	if file != "" {
		cfg, _, err = config.Load(config.Sources{File: file})
		return cfg, "by " + file, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if answer, _, err := runningConfiguration(ctx, defaultSocket()); err == nil {
		if cfg, err := config.Parse(answer.YAML); err == nil {
			return cfg, "by the configuration of the running agent", nil
		}
	}
	if _, err := os.Stat(packagedConfiguration); err == nil {
		if cfg, _, err := config.Load(config.Sources{File: packagedConfiguration}); err == nil {
			return cfg, "by " + packagedConfiguration + "; --config names another", nil
		}
	}
	return config.Default(), "by the default configuration; --config names another", nil
}

type setJSON struct {
	Name    string `json:"name"`
	Members int    `json:"members"`
	File    string `json:"file,omitempty"`
}

type findingJSON struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	What   string `json:"what"`
}

func findingOf(p rules.Position, what string) findingJSON {
	return findingJSON{p.File, p.Line, p.Column, what}
}

// checkJSON writes what check found. Errors are in the object, and not on stderr.
func checkJSON(w io.Writer, rs *rules.Ruleset, warnings []rules.Warning, use gate.Use, err error) error {
	answer := struct {
		Rules    []ruleJSON    `json:"rules"`
		Sets     []setJSON     `json:"sets"`
		Warnings []findingJSON `json:"warnings"`
		Errors   []findingJSON `json:"errors"`
		Tables   gate.Use      `json:"tables"`
	}{[]ruleJSON{}, []setJSON{}, []findingJSON{}, []findingJSON{}, use}
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
		return command.UsageError{Err: command.ErrReported}
	}
	return nil
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/gate/rules"
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

// readRules reads a rule file; - is stdin.
func readRules(name string, stdin io.Reader) (*rules.Ruleset, []rules.Warning, error) {
	text, err := readText(name, stdin)
	if err != nil {
		return nil, nil, fmt.Errorf("read rules: %w", err)
	}
	rs, warnings, err := rules.Parse(name, text, rules.Options{Now: time.Now()})
	if err != nil {
		return nil, nil, command.UsageError{Err: err}
	}
	return rs, warnings, nil
}

// readText reads a file, or stdin, that a user names.
func readText(name string, stdin io.Reader) (string, error) {
	if name == "-" {
		return rules.ReadText(name, stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() // only read from
	return rules.ReadText(name, f)
}

// ruleJSON is a rule as commands show it.
type ruleJSON struct {
	ID   uint32 `json:"id"`
	Text string `json:"text"`
	Line int    `json:"line"`
}

func ruleOf(r *rules.Rule) ruleJSON { return ruleJSON{r.ID, r.Text, r.Pos.Line} }

func writeRulesJSON(w io.Writer, answer any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(answer)
}

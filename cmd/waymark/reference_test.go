package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/waymark-net/waymark/internal/analyze/verbs"
	"github.com/waymark-net/waymark/internal/command"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/export/kafka/message"
	"github.com/waymark-net/waymark/test/golden"
)

// document is a file of docs/reference and what writes it.
type document struct {
	name  string
	write func(io.Writer, *cobra.Command) error
}

// documents are made of the same tables as the program, so they cannot drift
// from it. They hold no dates and nothing of the machine.
var documents = []document{
	{"cli.md", writeCLI},
	{"configuration.md", withoutCommands(writeConfiguration)},
	{"configuration.schema.json", withoutCommands(writeConfigurationSchema)},
	{"queries.md", withoutCommands(writeQueries)},
	{"api.md", withoutCommands(writeAPI)},
	{"record.md", withoutCommands(writeRecord)},
	{"record.schema.json", withoutCommands(func(w io.Writer) error { _, err := w.Write(jsonl.Schema()); return err })},
	{"flow.proto", withoutCommands(func(w io.Writer) error { _, err := io.WriteString(w, message.Schema()); return err })},
	{"decode.md", withoutCommands(writeDecode)},
	{"rules.md", withoutCommands(writeRules)},
	{"verdicts.md", withoutCommands(writeVerdicts)},
	{"ipfix.md", withoutCommands(writeIPFIX)},
	{"metrics.md", withoutCommands(writeMetrics)},
	{"kernel.md", withoutCommands(writeKernel)},
	{"man/waymark-filter.7", withoutCommands(writeFilterMan)},
	{"man/waymark.yaml.5", withoutCommands(writeConfigurationMan)},
}

func withoutCommands(write func(io.Writer) error) func(io.Writer, *cobra.Command) error {
	return func(w io.Writer, _ *cobra.Command) error { return write(w) }
}

// TestReference compares docs/reference with what the program's commands, configuration and fields say; -update writes it.
func TestReference(t *testing.T) {
	const reference = "../../docs/reference"
	root := newReferenceCommand()
	dir := t.TempDir()
	if *golden.Update {
		dir = reference
	}
	if err := generateDocs(root, dir); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("diff", "-ru", reference, dir).CombinedOutput(); err != nil {
		t.Errorf("docs/reference is stale, 'make docs' writes it: %v\n%s", err, out)
	}
}

// newReferenceCommand has all verbs, with those of the analyzer, whose program is another one.
func newReferenceCommand() *cobra.Command {
	root, _ := newRootCommand()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "analyze" {
			root.RemoveCommand(cmd)
		}
	}
	analyze := verbs.New()
	command.Finish(analyze, versionText)
	root.AddCommand(analyze)
	return root
}

func generateDocs(root *cobra.Command, dir string) error {
	for _, d := range documents {
		if err := writeFile(filepath.Join(dir, d.name), func(w io.Writer) error { return d.write(w, root) }); err != nil {
			return err
		}
	}
	for _, cmd := range documented(root) {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		if err := writeFile(filepath.Join(dir, "man", name), func(w io.Writer) error { return writeMan(w, cmd) }); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file whole or not at all.
func writeFile(path string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// documented lists the command and all below it that users meet, in order.
// Those that cobra adds are the same for every program and are left out.
func documented(cmd *cobra.Command) []*cobra.Command {
	if cmd.Hidden || cmd.Name() == "help" || cmd.HasParent() && cmd.Parent().Name() == "completion" {
		return nil
	}
	list := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		list = append(list, documented(sub)...)
	}
	return list
}

func writeConfigurationSchema(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(config.Schema())
}

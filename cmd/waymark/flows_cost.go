package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/term"
)

// printCost shows what the request would take.
func (f *flowsCommand) printCost(cmd *cobra.Command, stdout io.Writer) error {
	e, err := f.agent.client().Explain(cmd.Context(), f.request)
	if err != nil {
		return err
	}
	if f.out.format == outputJSON || f.out.format == outputJSONL {
		return json.NewEncoder(stdout).Encode(e)
	}
	t := &term.Table{Columns: []term.Column{
		{Title: "ENGINE"}, {Title: "INTERVALS", Right: true}, {Title: "RECORDS", Right: true}, {Title: "SKIPPED", Right: true}, {Title: "BYTES", Right: true},
	}}
	for _, c := range e.Engines {
		t.Add(c.Engine, term.Count(uint64(c.Intervals)), term.Count(c.Records), term.Count(c.Skipped), term.Count(c.Bytes))
	}
	if err := t.Write(stdout, 0); err != nil {
		return err
	}
	if e.Budget != "" {
		_, err = fmt.Fprintln(stdout, "the answer will be partial: "+e.Budget)
	}
	return err
}

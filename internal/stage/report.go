package stage

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/obs"
)

// ReportFormats are those of ShowStatus.
var ReportFormats = []string{"table", "json", "jsonl", "csv"}

// Report is a status in its formats.
type Report struct {
	Table func(io.Writer) error
	Lines []any             // of jsonl
	Rows  func() [][]string // of csv, with a title
}

// Tables are several, one below the other.
func Tables(all ...func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, write := range all {
			if err := write(w); err != nil {
				return err
			}
		}
		return nil
	}
}

// ShowStatus is a verb whose only argument may be "status": it shows a page of the agent.
func ShowStatus[S any](page api.Page, report func(*S) Report) func(context.Context, Call) error {
	return func(ctx context.Context, c Call) error {
		if c.Arg != "" && c.Arg != "status" {
			return fmt.Errorf("argument %q is not known: write status, or nothing", c.Arg)
		}
		var s S
		if err := c.Agent.Page(ctx, page.Path, &s); err != nil {
			return err
		}
		r := report(&s)
		switch c.Format {
		case "json":
			return json.NewEncoder(c.Out).Encode(s)
		case "jsonl":
			out := json.NewEncoder(c.Out)
			for _, line := range r.Lines {
				if err := out.Encode(line); err != nil {
					return err
				}
			}
			return nil
		case "csv":
			return csv.NewWriter(c.Out).WriteAll(r.Rows())
		}
		return r.Table(c.Out)
	}
}

// Text writes the section of waymark status of a stage where it runs, and has a status of its own.
func Text[S any](name string, write func(*S, io.Writer) error) func(io.Writer, *obs.Status) error {
	return func(w io.Writer, s *obs.Status) error {
		if own := obs.SectionOf[S](s, name); own != nil {
			return write(own, w)
		}
		return nil
	}
}

// Lines are elements as lines of a report.
func Lines[T any](list []T) (all []any) {
	for i := range list {
		all = append(all, &list[i])
	}
	return all
}

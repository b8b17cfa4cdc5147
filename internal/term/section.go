package term

import (
	"io"
	"strings"
)

// Section writes a table after an empty line, and nothing of an empty one.
func Section(w io.Writer, t *Table) error {
	if len(t.Rows) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return t.Write(w, Width(w))
}

// ShortDirection is a direction in a column.
func ShortDirection(d string) string {
	switch d {
	case "ingress":
		return "in"
	case "egress":
		return "out"
	}
	return d
}

// Indent puts by before each line.
func Indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

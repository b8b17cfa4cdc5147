// Package duckdb has DuckDB answer queries, which is an independent reader of the files of the history. Input: SQL with
// parameters. Output: rows. Callers: tests of package disk, the benchmark of the history.
package duckdb

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/test/python"
)

// Query is a statement; args are of type uint64, string or []byte.
type Query struct {
	SQL   string
	Args  []any
	Times int // how often it is asked; 0: once
}

// Result is what a query returned.
type Result struct {
	Rows         [][]json.Number
	Milliseconds []float64 // of each time
}

// ErrMissing says that DuckDB is not installed.
var ErrMissing = errors.New("the Python package duckdb is not installed: scripts/setup test")

//go:embed ask.py
var script string

// Version is that of DuckDB, or an error that says what is missing.
func Version(ctx context.Context) (string, error) {
	out, err := python.Command(ctx, "-c", "import duckdb; print(duckdb.__version__)").Output()
	if err != nil {
		return "", ErrMissing
	}
	return strings.TrimSpace(string(out)), nil
}

// Ask has queries answered on one thread, one after the other.
func Ask(ctx context.Context, queries []Query) ([]Result, error) {
	type arg struct {
		Kind  string `json:"kind"`
		Value string `json:"value"`
	}
	type query struct {
		SQL   string `json:"sql"`
		Args  []arg  `json:"args"`
		Times int    `json:"times"`
	}
	list := make([]query, len(queries))
	for i, q := range queries {
		list[i] = query{q.SQL, []arg{}, max(q.Times, 1)}
		for _, v := range q.Args {
			a := arg{"text", fmt.Sprint(v)}
			switch v := v.(type) {
			case uint64:
				a.Kind = "number"
			case []byte:
				a = arg{"bytes", hex.EncodeToString(v)}
			}
			list[i].Args = append(list[i].Args, a)
		}
	}
	in, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	cmd := python.Command(ctx, "-c", script)
	cmd.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("duckdb: %w: %s", err, stderr.String())
	}
	var results []Result
	if err := json.Unmarshal(out, &results); err != nil {
		return nil, fmt.Errorf("duckdb: %w", err)
	}
	return results, nil
}

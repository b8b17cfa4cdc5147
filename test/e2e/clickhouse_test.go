package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	export "github.com/waymark-net/waymark/internal/export/clickhouse"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/clickhouse"
)

// TestClickHouse: what an agent counted while ClickHouse ran, and while it was killed, is there once; and the next agent, which has no
// history of its own, answers about it.
func TestClickHouse(t *testing.T) {
	t.Parallel()
	server := clickhouse.Start(t)
	r := waymark(t, "config", "clickhouse", "--keep", "0s")
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	for statement := range strings.SplitSeq(strings.TrimSpace(r.stdout), ";\n\n") {
		server.Query(t, strings.TrimSuffix(statement, ";"))
	}
	_, alpha, beta := newLab(t)
	server.Stop()
	server.In = alpha.Do
	server.Again(t)
	config := quick + "interfaces: [" + alpha.Interfaces[0].Name + "]\nhistory: {use: never}\nexport:\n- jsonl: {path: DIR/flows.jsonl}\n" +
		"- clickhouse: {url: \"" + server.URL + "\", queue_path: " + filepath.Join(t.TempDir(), "queue") + "}\n"
	began := time.Now()
	a := start(t, setup{host: alpha, config: config})
	makeTraffic(t, alpha, beta)()
	await.True(t, "records in ClickHouse", func() bool { return a.exporter(t, "clickhouse").Exported > 0 })
	server.Stop()
	makeTraffic(t, alpha, beta)()
	await.True(t, "an error that says what to do", func() bool { return strings.Contains(a.exporter(t, "clickhouse").LastError, "start ClickHouse there") })
	a.stop(t)
	ended := time.Now()
	server.Again(t)
	b := start(t, setup{host: alpha, config: config})
	records := readLines(t, a.path("flows.jsonl"))
	await.Success(t, func() error { // what the first agent left in the queue is sent first
		q := b.ask(t, "flows", "--since", began.Format(time.RFC3339Nano), "--until", ended.Format(time.RFC3339Nano), "--by", "direction", "-o", "json")
		var got struct {
			Partial string `json:"partial"`
			Lost    uint64 `json:"lost"`
			Rows    []struct {
				Direction string `json:"direction"`
				amount
			} `json:"rows"`
		}
		if err := json.Unmarshal([]byte(q.stdout), &got); err != nil || got.Partial != "" || got.Lost > 0 || len(got.Rows) != 2 {
			return notYet("%v: %s%s", err, q.stdout, q.stderr)
		}
		for _, row := range got.Rows {
			want := sum(records, func(r *record) bool { return r.Direction == row.Direction })
			want.WireBytes = 0 // rows do not show it
			if row.amount != want || want.Packets < 1000 {
				return notYet("%s: ClickHouse %+v, JSON lines %+v", row.Direction, row.amount, want)
			}
		}
		return nil
	})
	b.stop(t)
	server.Stop()
	server.In = nil
	server.Again(t)
	if n := server.Query(t, "SELECT count() - uniqExact(host, interval, row) FROM "+export.DefaultTables().Records()); n != "0" {
		t.Errorf("%s records are there twice", n)
	}
}

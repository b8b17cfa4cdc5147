package clickhouse

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/storetest"
)

// TestPartitions: of records of ten days, a plan for one day reads the partition of that day, whichever statement it becomes.
func TestPartitions(t *testing.T) {
	_, far, server := filled(t, 1)
	day := func(n int) time.Time { return storetest.Epoch.AddDate(0, 0, n) }
	for n := 1; n <= 10; n++ {
		server.Query(t, fmt.Sprintf("INSERT INTO waymark.flows (time, interval, host, iface, packets) VALUES ('%s', %d, '%s', 'eth0', 5)",
			day(n).Format(time.DateTime), n+100, host))
		server.Query(t, fmt.Sprintf("INSERT INTO waymark.flows_intervals (time, until, host, sequence, rows) VALUES ('%s', '%s', '%s', %d, 1)",
			day(n).Format(time.DateTime), day(n).Add(10*time.Second).Format(time.DateTime), host, n+100))
	}
	p := query.Plan{Since: day(4), Until: day(5)}
	if a := ask(t, p, far); a.Records != 1 || a.Total.Packets != 5 || a.Intervals != 1 || a.Lost != 0 {
		t.Errorf("%d records, %d packets, %d intervals, %d lost", a.Records, a.Total.Packets, a.Intervals, a.Lost)
	}
	if a := ask(t, query.Plan{}, far); a.Intervals != 11 || a.Lost != 99 {
		t.Errorf("%d intervals, %d lost", a.Intervals, a.Lost)
	}
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	q := far.statement()
	heads := []store.Head{{Sequence: 104, From: day(4), To: day(4).Add(10 * time.Second)}}
	q.text = "EXPLAIN indexes = 1 SELECT count() FROM waymark.flows WHERE " + q.where(host, &p, heads) + " FORMAT TabSeparated"
	body, err := q.client.Select(t.Context(), q.text, q.settings)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(text), "Partition") || !strings.Contains(string(text), "Parts: 1/1") {
		t.Errorf("not one part of all is read: %v\n%s", err, text)
	}
}

// TestNoServer: what a server that does not answer would have is missing, and the answer says so.
func TestNoServer(t *testing.T) {
	memory, far, server := filled(t, 3)
	short := store.New(store.Config{History: 1})
	server.Stop()
	a := ask(t, query.Plan{}, short, far)
	if !strings.Contains(a.Partial, "start ClickHouse there") || a.Records != 0 {
		t.Errorf("%d records, partial: %q", a.Records, a.Partial)
	}
	began := time.Now()
	if a = ask(t, query.Plan{Since: storetest.At(0)}, memory, far); a.Partial != "" || a.Records == 0 {
		t.Errorf("asked for what the memory has: %d records, %q after %v", a.Records, a.Partial, time.Since(began))
	}
}

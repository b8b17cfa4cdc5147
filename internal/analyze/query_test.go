package analyze

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/verdict"
	"github.com/waymark-net/waymark/test/await"
)

// TestQueries asks for the same flows at two hosts, from the logs and from sealed files: rows by flow and by host are of one
// host each, others add up both.
func TestQueries(t *testing.T) {
	s := newScene(t)
	a, _ := s.start(t)
	a.live.every = 20 * time.Millisecond
	from := time.Now().Add(-30 * time.Minute).Truncate(time.Minute)
	const rows, intervals = 40, 12
	for _, name := range []string{"alpha", "beta"} {
		f := s.certificate(t, name)
		client := s.client(t, f.Cert, f.Key)
		for n := range uint64(intervals) {
			if name == "beta" && n >= 6 { // the same flows, for half of the time
				break
			}
			if status, text, _ := s.push(t, client, bodyOf(n+1, rows, from.Add(time.Duration(n)*10*time.Second))); status != 200 {
				t.Fatalf("%d %s", status, text)
			}
		}
	}
	client := api.NewClient(filepath.Join(s.dir, "s"))
	ask := func(r api.Request) api.Answer {
		t.Helper()
		answer, err := client.Flows(context.Background(), r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		return answer
	}
	check := func(where string) {
		t.Helper()
		whole := ask(api.Request{Everywhere: true})
		byHost := map[string]uint64{}
		for _, row := range ask(api.Request{By: "host", Everywhere: true}).Rows {
			byHost[row.Host] = row.Packets
		}
		if whole.Records != 18*rows || byHost["alpha"]+byHost["beta"] != whole.Total.Packets || byHost["beta"] == 0 || len(byHost) != 2 {
			t.Errorf("%s: %d records of %d packets, by host %v", where, whole.Records, whole.Total.Packets, byHost)
		}
		flows := map[string]uint64{}
		for _, row := range whole.Rows {
			if row.Host == "" {
				t.Fatalf("%s: a row by flow is of no host: %s", where, row.JSON)
			}
			flows[row.Host] += row.Packets
		}
		if fmt.Sprint(flows) != fmt.Sprint(byHost) {
			t.Errorf("%s: rows by flow have %v, by host %v", where, flows, byHost)
		}
		if answer := ask(api.Request{By: "dport", Everywhere: true, Limit: 1}); len(answer.Rows) != 1 || answer.Rows[0].Packets != whole.Total.Packets {
			t.Errorf("%s: by port: %+v", where, answer.Rows)
		}
		// Two ways to the same: the first hosts and addresses, with and without a choice by columns.
		most := ask(api.Request{By: "host,src", Everywhere: true, Limit: 7})
		all := ask(api.Request{By: "host,src", Everywhere: true})
		for i := range most.Rows {
			if string(most.Rows[i].JSON) != string(all.Rows[i].JSON) && most.Rows[i].Packets != all.Rows[i].Packets {
				t.Errorf("%s: row %d is %s, want %s", where, i, most.Rows[i].JSON, all.Rows[i].JSON)
			}
		}
		steps := map[string]uint64{}
		for _, row := range ask(api.Request{By: "host", Everywhere: true, Step: time.Minute}).Rows {
			steps[row.Host] += row.Packets
		}
		if fmt.Sprint(steps) != fmt.Sprint(byHost) {
			t.Errorf("%s: steps have %v, want %v", where, steps, byHost)
		}
	}
	check("logs")
	var why verdict.Answer
	if err := client.Why(context.Background(), api.WhyRequest{Since: "1h"}, &why); err != nil || why.From.IsZero() || len(why.Examined) == 0 {
		t.Errorf("why: %+v, %v", why, err)
	}
	for _, v := range why.Verdicts {
		if v.Where.Host == "" {
			t.Errorf("a verdict names no host: %+v", v)
		}
	}
	for _, h := range a.all() {
		h.keeping.Lock()
		if err := h.disk.Seal(); err != nil {
			t.Fatal(err)
		}
		h.keeping.Unlock()
	}
	check("files")

	// Who follows gets what comes, of both hosts at once.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	came := make(chan api.Answer, 16)
	go func() {
		_ = client.Follow(ctx, api.Request{By: "host", Everywhere: true, Follow: true}, func(a api.Answer) error {
			came <- a
			return nil
		})
	}()
	await.True(t, "a follower", func() bool {
		a.live.mu.Lock()
		defer a.live.mu.Unlock()
		return len(a.live.followers) == 1
	})
	for _, name := range []string{"alpha", "beta"} {
		f := s.certificate(t, name)
		s.push(t, s.client(t, f.Cert, f.Key), bodyOf(intervals+1, rows, from.Add(time.Hour)))
	}
	followed := map[string]uint64{}
	for len(followed) < 2 {
		for _, row := range await.Signal(t, "what came", came).Rows {
			followed[row.Host] += row.Records
		}
	}
	if followed["alpha"] != rows || followed["beta"] != rows {
		t.Errorf("followed %v", followed)
	}
}

package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/await"
)

// dial opens a connection and says something.
func (a *agent) dial(t *testing.T, say string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, say); err != nil {
		t.Fatal(err)
	}
	return conn
}

// begin is dial for a request whose answer has begun.
func (a *agent) begin(t *testing.T, path string) *bufio.Reader {
	t.Helper()
	r := bufio.NewReader(a.dial(t, "GET "+path+" HTTP/1.1\r\nHost: waymark\r\n\r\n"))
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%s: %q, %v", path, line, err)
	}
	return r
}

// Connections that say nothing, or half of a request, keep nobody out; nor do
// those in addition to all followers and queries.
func TestStatusUnderIdleConnections(t *testing.T) {
	a := start(t, "")
	for range maxFollowers {
		a.begin(t, "/api/v1/flows?follow=true")
	}
	for range 600 {
		a.dial(t, "GET /api/v1/status HTTP/1.1\r\nHost")
	}
	for range 200 {
		a.dial(t, "")
	}
	for _, path := range []string{"/api/v1/status", "/livez", "/readyz", "/metrics", "/api/v1/flows"} {
		client := NewClient(a.socket) // a new connection each
		if code, _ := do(t, client.http, http.MethodGet, "http://waymark"+path); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
		client.http.CloseIdleConnections()
	}
	await.Success(t, func() error {
		s := a.server.Stats()
		if s.Connections > maxConnections || s.Evicted < 700 || s.Followers != maxFollowers || s.Dropped != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// flood fills an interval with flows of one packet.
func (a *agent) flood(flows int) {
	iv := a.store.Begin(epoch)
	r := web(1000)
	for i := range flows {
		r.Src = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
		iv.Add(&r)
	}
	iv.End(epoch.Add(10 * time.Second))
}

// heap is what is in use after a collection.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Followers who never read hold no more than the memory for answers, are dropped
// and counted, and leave nothing behind; one who reads misses nothing meanwhile.
func TestFollowersWhoNeverRead(t *testing.T) {
	const flows, answers = 5000, 4 << 20
	a := start(t, "")
	a.server.feeds.most, a.server.piece = answers, 200*time.Millisecond
	a.flood(flows)
	before := heap()
	for i := range maxFollowers - 1 {
		a.begin(t, fmt.Sprintf("/api/v1/flows?follow=true&limit=%d", flows-i%4)) // 4 queries
	}
	quick := json.NewDecoder(bodyOf(t, a, "/api/v1/flows?follow=true&limit=10"))
	most := 0
	for range 6 {
		a.flood(flows)
		var answer Answer
		if err := quick.Decode(&answer); err != nil || len(answer.Rows) != 10 || answer.Groups != flows || answer.Missed != 0 {
			t.Fatalf("%d rows of %d, %d missed, %v", len(answer.Rows), answer.Groups, answer.Missed, err)
		}
		a.server.feeds.mu.Lock()
		most = max(most, a.server.feeds.held)
		a.server.feeds.mu.Unlock()
	}
	if most > answers {
		t.Errorf("%d bytes of answers are held, the bound is %d", most, answers)
	}
	await.Success(t, func() error {
		if s := a.server.Stats(); s.Dropped != maxFollowers-1 || s.Followers != 1 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	a.server.feeds.mu.Lock()
	held := a.server.feeds.held
	a.server.feeds.mu.Unlock()
	// The history itself is bounded, and grew by six intervals.
	if after := heap(); held > 10_000 || after-before > 6*flows*200+(8<<20) {
		t.Errorf("%d bytes of answers are held by nobody, the heap grew by %d", held, after-before)
	}
}

// bodyOf is the answer's body, as it comes.
func bodyOf(t *testing.T, a *agent, path string) io.Reader {
	t.Helper()
	resp, err := NewClient(a.socket).http.Get("http://waymark" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

// Those who follow the same query get the same answer, made once.
func TestFollowersShareAnswers(t *testing.T) {
	a := start(t, "")
	const readers = 10
	var bodies []*json.Decoder
	for range readers {
		bodies = append(bodies, json.NewDecoder(bodyOf(t, a, "/api/v1/flows?follow=true&limit=3&every=2s")))
	}
	for i := range 3 {
		a.flood(100 * (i + 1))
		feeds := a.server.feeds
		feeds.mu.Lock()
		distinct := len(feeds.feeds)
		feeds.mu.Unlock()
		if distinct != 1 {
			t.Errorf("%d queries are answered, want one", distinct)
		}
		for n, body := range bodies {
			var answer Answer
			if err := body.Decode(&answer); err != nil || answer.Groups != 100*(i+1) || len(answer.Rows) != 3 {
				t.Errorf("follower %d: %d rows of %d, %v", n, len(answer.Rows), answer.Groups, err)
			}
		}
	}
}

// An answer of many pieces arrives whole, and one that is too large as its first rows.
func TestFollowedPieces(t *testing.T) {
	a := start(t, "")
	body := json.NewDecoder(bodyOf(t, a, "/api/v1/flows?follow=true"))
	for _, flows := range []int{1000, 20_000} {
		a.flood(flows)
		var answer Answer
		if err := body.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		n, size := len(answer.Rows), 0
		for i := range answer.Rows {
			size += len(answer.Rows[i].JSON) + 1
		}
		space := a.server.feeds.most / 4
		if answer.Groups != flows || n < flows && (size < space-1000 || size > space+1000) {
			t.Errorf("%d rows of %d flows with %d bytes, there is space for %d", n, answer.Groups, size, space)
		}
	}
}

// A reader of a stream who does not read hinders nobody: others get all events, and
// whoever reads for the longest time is dropped for a new one.
func TestStreamsHaveSeveralReaders(t *testing.T) {
	events := make(chan numbered)
	streams := 0
	a := start(t, "", Stream{Path: "/api/v1/toy", Run: func(ctx context.Context, emit func(Event)) error {
		streams++
		for {
			select {
			case e := <-events:
				emit(e)
			case <-ctx.Done():
				return nil
			}
		}
	}})
	silent := bodyOf(t, a, "/api/v1/toy") // not read until the end
	reader := json.NewDecoder(bodyOf(t, a, "/api/v1/toy"))
	const count = 4000
	for i := range count {
		events <- numbered{Number: i}
		var e numbered
		if err := reader.Decode(&e); err != nil || e.Number != i || e.Missed != 0 {
			t.Fatalf("event %d: %+v, %v", i, e, err)
		}
	}
	for range maxStreamReaders - 1 {
		a.begin(t, "/api/v1/toy")
	}
	// The first had to leave, or was too slow before: its answer may be cut off then.
	if _, err := io.Copy(io.Discard, silent); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if s := a.server.Stats(); s.Followers != maxStreamReaders || s.Dropped == 0 {
		t.Errorf("%+v", s)
	}
	if streams != 1 {
		t.Errorf("events were streamed %d times at the same time", streams)
	}
}

// numbered is an event.
type numbered struct {
	Number int
	Missed uint64
}

func (n numbered) Line(missed uint64) ([]byte, error) {
	n.Missed = missed
	return json.Marshal(n)
}

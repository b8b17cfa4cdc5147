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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/waymark-net/waymark/internal/export/jsonl"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func web(bytes uint64) flow.Record {
	return flow.Record{
		Iface: "eth0", IfIndex: 2, Direction: flow.Egress, Family: 6,
		Src: netip.MustParseAddr("2001:db8::1"), Dst: netip.MustParseAddr("2001:db8::2"), Proto: 6, SrcPort: 50000, DstPort: 443,
		TOS: 8, TCPFlags: 0x1b, FlowLabel: 5, TTLMin: 63, TTLMax: 64,
		Counters: flow.Counters{Packets: 10, Bytes: bytes, PayloadBytes: bytes - 400, WireBytes: bytes + 140},
		First:    epoch, Last: epoch.Add(2 * time.Second),
		RTT: flow.RTT{Responder: 8 * time.Millisecond, Initiator: time.Millisecond},
	}
}

// agent is a server over a store that tests fill.
type agent struct {
	store  *store.Store
	server *Server
	client *Client
	socket string
	stop   func() error
	ready  error
}

func start(t *testing.T, listen string, streams ...Stream) *agent {
	t.Helper()
	s := store.New(store.Default())
	a := startWith(t, listen, s, streams...)
	a.store = s
	return a
}

func startWith(t *testing.T, listen string, history History, streams ...Stream) *agent {
	t.Helper()
	a := &agent{socket: filepath.Join(t.TempDir(), "run", "agent.sock")}
	a.server = New(Config{Socket: a.socket, Listen: listen}, Deps{
		Origin:  flow.Origin{Host: "alpha", Sampling: 1},
		History: history,
		Status:  func() obs.Status { return obs.Status{Host: "alpha", PID: os.Getpid()} },
		Ready:   func() error { return a.ready }, Streams: streams,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "waymark_up 1")
		}),
	})
	if err := a.server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.server.Run(ctx) }()
	stopped := false
	a.stop = func() error {
		stopped = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			return errors.New("the server does not stop")
		}
	}
	t.Cleanup(func() {
		if !stopped {
			if err := a.stop(); err != nil {
				t.Error(err)
			}
		}
	})
	a.client = NewClient(a.socket)
	return a
}

func (a *agent) fill(records ...flow.Record) {
	iv := a.store.Begin(epoch)
	for i := range records {
		iv.Add(&records[i])
	}
	iv.End(epoch.Add(10 * time.Second))
}

// get asks over the socket and returns status and body.
func (a *agent) get(t *testing.T, path string) (int, string) {
	t.Helper()
	return do(t, a.client.http, http.MethodGet, "http://waymark"+path)
}

func do(t *testing.T, c *http.Client, method, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestHealth(t *testing.T) {
	a := start(t, "")
	if code, body := a.get(t, "/livez"); code != 200 || body != "ok\n" {
		t.Errorf("/livez: %d %q", code, body)
	}
	if code, body := a.get(t, "/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, body := a.get(t, "/metrics"); code != 200 || body != "waymark_up 1\n" {
		t.Errorf("/metrics: %d %q", code, body)
	}
	a.ready = errors.New("eth0: not attached")
	if code, body := a.get(t, "/readyz"); code != 503 || body != `{"what":"eth0: not attached","how":"waymark status shows more"}`+"\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.client.Wait(ctx); err == nil || !strings.Contains(err.Error(), "eth0: not attached") {
		t.Errorf("Wait = %v", err)
	}
}

func TestStatus(t *testing.T) {
	a := start(t, "")
	s, err := a.client.Status(t.Context())
	if err != nil || s.Host != "alpha" || s.PID != os.Getpid() {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFlows(t *testing.T) {
	a := start(t, "")
	empty, err := a.client.Flows(t.Context(), Request{})
	if err != nil || !empty.To.IsZero() || len(empty.Rows) != 0 {
		t.Errorf("before the first interval: %+v, %v", empty, err)
	}
	a.fill(web(1000), web(2000))

	got, err := a.client.Flows(t.Context(), Request{Filter: "dport 443", Since: "2026-01-02T03:04:06Z", Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	if got.Host != "alpha" || got.Sampling != 1 || got.Intervals != 1 || got.Records != 2 || got.Groups != 1 ||
		got.Total != (flow.Counters{Packets: 20, Bytes: 3000, WireBytes: 3280, PayloadBytes: 2200}) || !got.To.Equal(epoch.Add(10*time.Second)) {
		t.Errorf("%+v", got)
	}
	want := web(3000)
	want.Packets, want.PayloadBytes, want.WireBytes = 20, 2200, 3280
	want.IfIndex = 0 // is not in the JSON record
	row := got.Rows[0]
	if diff := cmp.Diff(want, row.Record, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A row by flow is a record as the exporters write it.
	origin, record, err := jsonl.Decode(row.JSON)
	if err != nil {
		t.Fatalf("%v\n%s", err, row.JSON)
	}
	if origin.Host != "alpha" || record != want {
		t.Errorf("%+v %+v", origin, record)
	}
	if none, err := a.client.Flows(t.Context(), Request{Filter: "udp"}); err != nil || none.Records != 0 || none.Intervals != 1 {
		t.Errorf("%+v, %v", none, err)
	}
}

// Who asks for more than is kept is informed, by field, by header and in words.
func TestIncompleteAnswer(t *testing.T) {
	a := start(t, "")
	a.store = store.New(store.Config{History: 2})
	a.server.deps.History = a.store
	a.fill(web(1000))
	for _, tt := range []struct {
		since      time.Duration
		incomplete query.Short
		warning    string
	}{
		{0, "", ""},
		{-time.Hour, query.ShortStarted, "the history covers 10s only"},
		{5 * time.Second, query.ShortHistory, "api.history"}, // once a flood came
	} {
		if tt.incomplete == query.ShortHistory {
			a.fill(web(1), web(2), web(3))
		}
		request := Request{Since: epoch.Add(tt.since).Format(time.RFC3339)}
		resp, err := a.client.http.Get("http://waymark/api/v1/flows?" + request.Values().Encode())
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Waymark-Incomplete"); got != string(tt.incomplete) {
			t.Errorf("since %v: header %q", tt.since, got)
		}
		got, err := a.client.Flows(t.Context(), request)
		if err != nil || got.Incomplete != tt.incomplete || !got.Since.Equal(epoch.Add(tt.since)) ||
			!strings.Contains(got.Warning(), tt.warning) || tt.warning == "" && got.Warning() != "" {
			t.Errorf("since %v: %q, %q, %v", tt.since, got.Incomplete, got.Warning(), err)
		}
	}
}

func TestRowJSON(t *testing.T) {
	a := start(t, "")
	back := web(9000)
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Direction = back.Dst, back.Src, 443, 50000, flow.Ingress
	a.fill(web(1000), back)
	for by, want := range map[string]string{
		"proto": `{"proto":6,"tcp_flags":27,"packets":20,"bytes":10000,"wire_bytes":10280,` +
			`"first":"2026-01-02T03:04:05.000000000Z","last":"2026-01-02T03:04:07.000000000Z","payload_bytes":9200,` +
			`"ttl_min":63,"ttl_max":64,"rtt":{"responder_ns":8000000,"initiator_ns":1000000,"handshake_ns":9000000},"records":2,"rtt_records":2}`,
		"src/48,dport,iface": `{"iface":"eth0","src":"2001:db8::/48","dport":50000,"tcp_flags":27,"packets":10,"bytes":9000,"wire_bytes":9140,` +
			`"first":"2026-01-02T03:04:05.000000000Z","last":"2026-01-02T03:04:07.000000000Z","payload_bytes":8600,` +
			`"ttl_min":63,"ttl_max":64,"rtt":{"responder_ns":8000000,"initiator_ns":1000000,"handshake_ns":9000000},"records":1,"rtt_records":1}`,
		"pair": `{"src":"2001:db8::1","dst":"2001:db8::2","tcp_flags":27,"packets":20,"bytes":10000,"wire_bytes":10280,` +
			`"first":"2026-01-02T03:04:05.000000000Z","last":"2026-01-02T03:04:07.000000000Z","payload_bytes":9200,` +
			`"ttl_min":63,"ttl_max":64,"rtt":{"responder_ns":8000000,"initiator_ns":1000000,"handshake_ns":9000000},"records":2,"rtt_records":2,` +
			`"back":{"packets":10,"bytes":9000,"wire_bytes":9140,"payload_bytes":8600}}`,
	} {
		got, err := a.client.Flows(t.Context(), Request{By: by})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got.Rows[0].JSON)); diff != "" {
			t.Errorf("by %s (-want +got):\n%s", by, diff)
		}
		var again Row
		if err := json.Unmarshal(got.Rows[0].JSON, &again); err != nil {
			t.Error(err)
		}
		if strings.Join(got.By, ",") != by && by != "pair" {
			t.Errorf("by %s is answered with %v", by, got.By)
		}
	}
}

func TestRefusals(t *testing.T) {
	a := start(t, "")
	a.fill(web(1000))
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"/nothing", 404, `{"what":"nothing at /nothing","how":"there are /livez, /readyz, /metrics, /api/v1/status, /api/v1/flows and /api/v1/why"}`},
		{"/api/v1/flows?fliter=tcp", 400, `{"what":"parameter \"fliter\" is not known","how":"did you mean filter?"}`},
		{"/api/v1/flows?colour=blue", 400, `{"what":"parameter \"colour\" is not known","how":"there are filter, by, sort, reverse, everywhere, hosts, limit, sums, since, until, step, timeout, follow, every"}`},
		{"/api/v1/flows?limit=1&limit=2", 400, `{"what":"parameter limit is given 2 times","how":"give it once"}`},
		{"/api/v1/flows?limit=-1", 400, `{"what":"limit \"-1\" is not a number of rows","how":"write one like 20, or 0 for all"}`},
		{"/api/v1/flows?since=tomorrow", 400, `{"what":"since \"tomorrow\" is neither a duration nor a time","how":"write a duration back from now, such as 90s, 5m or 1d, or a time, such as 09:50, 2026-01-02 09:50 or 2026-01-02T15:04:05Z"}`},
		{"/api/v1/flows?follow=maybe", 400, `{"what":"follow \"maybe\" is neither true nor false","how":"write follow=true or leave it out"}`},
		{"/api/v1/flows?every=10ms&follow=1", 400, `{"what":"every \"10ms\" is no duration of at least 1s","how":"write one like 2s"}`},
		{"/api/v1/flows?every=10s", 400, `{"what":"every goes with follow","how":"add follow=true or leave it out"}`},
		{"/api/v1/flows?by=scr", 400, `{"what":"group by \"scr\": did you mean src?"}`},
		{"/api/v1/flows?sort=byte", 400, `{"what":"sort by \"byte\": did you mean bytes?"}`},
		{"/api/v1/flows?sort=byte&follow=true", 400, `{"what":"sort by \"byte\": did you mean bytes?"}`},
		{"/api/v1/flows?filter=tpc", 400, `{"what":"filter: unknown field tpc: did you mean tcp?\n  tpc\n  ^^^"}`},
	} {
		code, body := a.get(t, tt.path)
		if code != tt.code || strings.TrimSpace(body) != tt.want {
			t.Errorf("%s: %d %s\nwant %d %s", tt.path, code, body, tt.code, tt.want)
		}
	}
	code, body := do(t, a.client.http, http.MethodPost, "http://waymark/api/v1/flows")
	if code != 405 || !strings.Contains(body, "use GET") {
		t.Errorf("POST: %d %s", code, body)
	}
	_, err := a.client.Flows(t.Context(), Request{Filter: "tpc"})
	var refused *Error
	if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(err.Error(), "did you mean tcp?") {
		t.Errorf("client: %v", err)
	}
}

func TestRequestValues(t *testing.T) {
	want := Request{Filter: "a=b & c", By: "src/24", Sort: "rtt", Reverse: true, Everywhere: true, Hosts: "alpha,beta", Limit: 3, Since: "5m", Follow: true, Every: 2 * time.Second}
	got, err := parseRequest(want.Values())
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestFollow(t *testing.T) {
	a := start(t, "")
	released := make(chan struct{})
	a.server.deps.RequestScans = func(every time.Duration) func() {
		if every != 2*time.Second {
			t.Errorf("asked for %v", every)
		}
		return func() { close(released) }
	}
	answers := make(chan Answer)
	done := make(chan error, 1)
	go func() {
		done <- a.client.Follow(t.Context(), Request{By: "proto", Every: 2 * time.Second}, func(got Answer) error {
			answers <- got
			return nil
		})
	}()
	// What ends before the follower is there, it does not receive.
	var got Answer
	for got.Records == 0 {
		a.fill(web(1000))
		select {
		case got = <-answers:
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got.Total.Bytes != 1000 || got.Rows[0].Proto != 6 || got.Intervals != 1 {
		t.Errorf("%+v", got)
	}
	// The end of the agent is the end of the stream.
	go func() {
		for range answers {
		}
	}()
	if err := a.stop(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("Follow = %v", err)
	}
	<-released
	close(answers)
}

func TestFollowersAreBounded(t *testing.T) {
	a := start(t, "")
	for range maxFollowers {
		conn, err := net.Dial("unix", a.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /api/v1/flows?follow=true HTTP/1.1\r\nHost: waymark\r\n\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	code, body := a.get(t, "/api/v1/flows?follow=true")
	if code != 503 || !strings.Contains(body, "ask again") {
		t.Errorf("one too many: %d %s", code, body)
	}
	if code, _ := a.get(t, "/livez"); code != 200 {
		t.Errorf("/livez alongside them: %d", code)
	}
}

func TestHEAD(t *testing.T) {
	a := start(t, "")
	if code, body := do(t, a.client.http, http.MethodHead, "http://waymark/api/v1/status"); code != 200 || body != "" {
		t.Errorf("HEAD: %d %q", code, body)
	}
}

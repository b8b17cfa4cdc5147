package api

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// event is one of a stream.
type event struct{ id, data string }

// listen reads the events of a stream.
func (a *agent) listen(t *testing.T, query, last string) <-chan event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://waymark/api/v1/live?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := a.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	events := make(chan event)
	go func() {
		defer resp.Body.Close()
		var e event
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case name == "id":
				e.id = value
			case name == "data":
				e.data = value
			case lines.Text() == "" && e.data != "":
				select {
				case events <- e:
				case <-ctx.Done():
				}
				e = event{}
			}
		}
	}()
	return events
}

// next is the first event; each lasts as long as the test waits for it.
func next(t *testing.T, a *agent, events <-chan event, fill bool) (e event, answer Answer) {
	t.Helper()
	for deadline := time.After(20 * time.Second); ; {
		if fill {
			a.fill(web(1000))
		}
		select {
		case e = <-events:
		case <-deadline:
			t.Fatal("no event")
		case <-time.After(10 * time.Millisecond):
			continue
		}
		if err := json.Unmarshal([]byte(e.data), &answer); err != nil {
			t.Fatalf("%v: %s", err, e.data)
		}
		return e, answer
	}
}

// A reader gets each interval; one that comes again gets at once what it missed, and only that.
func TestLive(t *testing.T) {
	a := start(t, "")
	first, answer := next(t, a, a.listen(t, "by=proto", ""), true)
	if answer.Total.Bytes != 1000 || len(answer.Rows) != 1 || first.id == "" {
		t.Errorf("%s %+v", first.id, answer)
	}
	iv := a.store.Begin(epoch.Add(time.Hour))
	r := web(77)
	iv.Add(&r)
	iv.End(epoch.Add(time.Hour + 10*time.Second))
	again, answer := next(t, a, a.listen(t, "by=proto", first.id), false)
	if answer.Intervals != 1 || answer.Total.Bytes != 77 || again.id == first.id {
		t.Errorf("resumed: %s %+v", again.id, answer)
	}
}

func TestLiveRefusals(t *testing.T) {
	a := start(t, "")
	for path, want := range map[string]string{
		"/api/v1/live?filter=tpc":   "did you mean tcp?",
		"/api/v1/live?since=1h&x=1": "not known",
		"/api/v1/live?step=1m":      "are of the past",
		"/api/v1/live?sort=byte":    "did you mean bytes?",
	} {
		if code, body := a.get(t, path); code != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://waymark/api/v1/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", "-1")
	resp, err := a.client.http.Do(req)
	if err != nil || resp.StatusCode != 400 {
		t.Errorf("a strange event: %v %v", resp, err)
	}
	resp.Body.Close()
}

func TestCompletion(t *testing.T) {
	a := start(t, "")
	for filter, want := range map[string]string{
		"tpc":       `{"error":{"what":"unknown field tpc: did you mean tcp?","begin":0,"end":3},"words":[]}`,
		"tcp":       `{"words":[{"text":"and"},{"text":"or"}`,
		"tcp+and+ö": `"begin":8,"end":10`,
		"iface":     `"field":"iface"`,
		"proto":     `"text":"udp"`,
		"":          `"text":"tcp_flags","doc":"`,
	} {
		if code, body := a.get(t, completePath+"?filter="+filter); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s\nwant %s", filter, code, body, want)
		}
	}
	if code, body := a.get(t, completePath+"?text=tcp"); code != 400 || !strings.Contains(body, "give filter") {
		t.Errorf("%d %s", code, body)
	}
}

// What the reference names, the API takes.
func TestReferenceIsTaken(t *testing.T) {
	a := start(t, "")
	code, body := a.get(t, referencePath)
	var ref Reference
	if err := json.Unmarshal([]byte(body), &ref); err != nil || code != 200 {
		t.Fatalf("%d %v", code, err)
	}
	if len(ref.Filters) < 20 || len(ref.Keys) < 20 || len(ref.Numbers) < 10 || len(ref.Paths) < 8 || len(ref.Verdicts) < 5 {
		t.Errorf("%+v", ref)
	}
	for _, k := range ref.Keys {
		if code, body := a.get(t, "/api/v1/flows?by="+k.Name); code != 200 {
			t.Errorf("by %s: %s", k.Name, body)
		}
	}
	for _, n := range ref.Numbers {
		if code, body := a.get(t, "/api/v1/flows?sort="+n.Name); code != 200 {
			t.Errorf("sort %s: %s", n.Name, body)
		}
	}
}

// Paths of pages lead to the console, or to what it takes to have one.
func TestConsolePaths(t *testing.T) {
	a := start(t, "")
	if code, body := a.get(t, "/explore?since=1h"); code != 404 || !strings.Contains(body, "make build") {
		t.Errorf("%d %s", code, body)
	}
	a.server.deps.Console = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	if code, _ := a.get(t, "/explore?since=1h"); code != http.StatusTeapot {
		t.Errorf("%d", code)
	}
	if code, body := a.get(t, "/nothing"); code != 404 || !strings.Contains(body, "nothing at /nothing") {
		t.Errorf("%d %s", code, body)
	}
}

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestWhy: the request reaches the agent, its answer the reader; bad requests are refused with what
// is wrong and what to write.
func TestWhy(t *testing.T) {
	var got WhyRequest
	var failure error
	s := New(Config{}, Deps{Why: func(_ context.Context, r WhyRequest) (any, error) {
		got = r
		return map[string]string{"summary": "nothing"}, failure
	}})
	get := func(query string) (int, string) {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/why"+query, nil))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	asked := WhyRequest{Filter: "tcp and port 443", Since: "1h", Until: "5m"}
	if code, body := get("?" + asked.Values().Encode()); code != 200 || body != `{"summary":"nothing"}` || got != asked {
		t.Errorf("%d %s, asked %+v", code, body, got)
	}
	if code, _ := get(""); code != 200 || got != (WhyRequest{}) {
		t.Errorf("%d, asked %+v", code, got)
	}
	for query, want := range map[string]string{
		"?sincee=1h":                            `"what":"parameter \"sincee\" is not known","how":"did you mean since?"`,
		"?by=src":                               `there are filter, since, until`,
		"?since=1h&since=2h":                    `parameter since is given 2 times`,
		"?since=soon":                           `since \"soon\" is neither a duration nor a time`,
		"?until=-":                              `until \"-\" is neither a duration nor a time`,
		"?since=5m&until=1h":                    `exchange them, or leave until out`,
		"?filter=" + url.QueryEscape("tcp and"): `filter`,
	} {
		if code, body := get(query); code != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s, want %s", query, code, body, want)
		}
	}
	failure = fmt.Errorf("flows by pair: %w", context.DeadlineExceeded)
	if code, body := get(""); code != 503 || !strings.Contains(body, "choose a shorter time") {
		t.Errorf("%d %s", code, body)
	}
	if failure = errors.New("broken"); len(s.waiting) != 0 || len(s.queries) != 0 {
		t.Errorf("%d wait, %d at work", len(s.waiting), len(s.queries))
	}
	if code, body := get(""); code != 400 || !strings.Contains(body, "broken") {
		t.Errorf("%d %s", code, body)
	}
	none := New(Config{}, Deps{})
	w := httptest.NewRecorder()
	if none.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/why", nil)); w.Code != 404 {
		t.Errorf("without verdicts: %d", w.Code)
	}
}

// TestWhyRange: a range is checked before the agent is asked.
func TestWhyRange(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	since, until, err := WhyRequest{Since: "10:00", Until: "30m"}.Range(now)
	if err != nil || !since.Equal(now.Add(-2*time.Hour)) || !until.Equal(now.Add(-30*time.Minute)) {
		t.Errorf("%v to %v, %v", since, until, err)
	}
	if _, _, err := (WhyRequest{Until: "5m", Since: "5m"}).Range(now); err == nil {
		t.Error("an empty range is accepted")
	}
}

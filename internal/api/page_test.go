package api

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/obs"
)

// TestSetPage: a page that can be changed is changed over the unix socket only, and errors
// reach the caller as they are.
func TestSetPage(t *testing.T) {
	value := "old"
	socket := filepath.Join(t.TempDir(), "agent.sock")
	s := New(Config{Socket: socket, Listen: "127.0.0.1:0"}, Deps{
		Status: func() obs.Status { return obs.Status{} },
		Pages: []Page{
			{Path: "/api/v1/fixed", Get: func() (any, error) { return value, nil }},
			{Path: "/api/v1/word", Get: func() (any, error) { return value, nil }, Set: func(change json.RawMessage) (any, error) {
				var next string
				if err := json.Unmarshal(change, &next); err != nil {
					return nil, err
				}
				if next == "bad" {
					return nil, &Error{http.StatusConflict, "it is bad", "write a good one"}
				}
				value = next
				return value, nil
			}},
		},
	})
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	c := NewClient(socket)
	set := func(path string, change any) error {
		var answer string
		return c.Set(t.Context(), path, change, &answer)
	}
	if err := set("/api/v1/word", "new"); err != nil || value != "new" {
		t.Errorf("%q, %v", value, err)
	}
	for _, w := range []struct {
		path   string
		change any
		status int
		text   string
	}{
		{"/api/v1/word", "bad", 409, "it is bad; write a good one"},
		{"/api/v1/word", 7, 400, "cannot unmarshal"},
		{"/api/v1/word", strings.Repeat("x", maxChange), 413, "too large"},
		{"/api/v1/fixed", "new", 405, "use GET"},
	} {
		var refused *Error
		if err := set(w.path, w.change); !errors.As(err, &refused) || refused.Status != w.status || !strings.Contains(err.Error(), w.text) {
			t.Errorf("%s: %v, want %d %q", w.path, err, w.status, w.text)
		}
	}
	tcp := s.Addrs()[1].(*net.TCPAddr).String()
	resp, err := http.Post("http://"+tcp+"/api/v1/word", "application/json", strings.NewReader(`"theirs"`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || value != "new" {
		t.Errorf("over TCP: %s, %q", resp.Status, value)
	}
}

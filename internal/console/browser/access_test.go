package browser

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/access"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/store"
)

const token = "waymark_of_a_test"

// TestAccess: Chromium logs in with a token, and pages of other sites get nothing, whatever they try; see
// web/test/access.mjs.
func TestAccess(t *testing.T) {
	history := store.New(store.Default())
	fill(history, time.Now())
	behind := newServer(t, "", history)
	cfg := config.Default()
	own := access.Section.Edit(&cfg)
	own.Listen = "127.0.0.1:0"
	own.Tokens = []access.Token{{Name: "alice", Role: "read", Hash: fmt.Sprintf("%x", sha256.Sum256([]byte(token)))}}
	var admitted atomic.Int64 // requests
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted.Add(1)
		behind.Handler().ServeHTTP(w, r)
	})
	console, err := access.New(&cfg, access.Deps{Handler: handler, Serve: behind.Serve, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := console.Listen(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = console.Run(t.Context()) }()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if r.URL.Path == "/admitted" {
			fmt.Fprint(w, admitted.Load())
			return
		}
		fmt.Fprint(w, "<!doctype html><title>elsewhere</title><p>a page of another site")
	}))
	defer elsewhere.Close()
	run(t, "access.mjs", "CONSOLE=http://"+console.Addr().String(), "ELSEWHERE="+elsewhere.URL, "TOKEN="+token)
}

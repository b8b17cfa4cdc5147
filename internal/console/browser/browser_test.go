package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab/past"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/soak"
)

// ticker ends intervals when it is asked to.
func ticker(history *store.Store) http.Handler {
	next := time.Now().Truncate(past.Scan)
	var last []flow.Record
	past.New(next, 1).Intervals(func(_, _ time.Time, records []flow.Record) { last = records })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		for range n {
			iv := history.Begin(next)
			next = next.Add(past.Scan)
			for i := range last {
				last[i].First, last[i].Last = last[i].First.Add(past.Scan), last[i].Last.Add(past.Scan)
				iv.Add(&last[i])
			}
			iv.End(next)
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// The console in Chromium: every page in both themes, wide and narrow, by keyboard, live, for an hour with SOAK=1; see
// web/test/browser.mjs.
// With WAYMARK_SHOTS, pictures of the pages are left in that folder.
func TestBrowser(t *testing.T) {
	history, url := agent(t.Context(), t, "127.0.0.1:0")
	control := httptest.NewServer(ticker(history))
	defer control.Close()
	run(t, "browser.mjs", "CONSOLE="+url, "CONTROL="+control.URL,
		fmt.Sprintf("INTERVALS=%d", soak.Times(20, 60)), fmt.Sprintf("ROUNDS=%d", soak.Times(1, 6)), fmt.Sprintf("PACE=%d", soak.Times(0, int(past.Scan.Milliseconds()))))
}

// run runs a script of web/test in Chromium.
func run(t *testing.T, script string, env ...string) {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("no chromium: run 'make setup-test'")
	}
	cmd := exec.CommandContext(t.Context(), "node", "test/"+script)
	cmd.Dir = "../../../web"
	cmd.Env = append(append(os.Environ(), env...), "CHROMIUM="+chromium, "SHOTS="+os.Getenv("WAYMARK_SHOTS"), "HOME="+t.TempDir())
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Run(); err != nil {
		t.Errorf("%v; is everything installed? run 'scripts/console check'", err)
	}
}

// TestServe serves the console at WAYMARK_CONSOLE until it is stopped, for those who work on it; with SOAK=1, over a day.
func TestServe(t *testing.T) {
	listen := os.Getenv("WAYMARK_CONSOLE")
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	url := serve(t.Context(), t, listen, kept(t, soak.Times(1, 24)))
	t.Log(url)
	if os.Getenv("WAYMARK_CONSOLE") != "" {
		select {}
	}
}

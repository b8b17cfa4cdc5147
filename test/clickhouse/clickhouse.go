// Package clickhouse runs ClickHouse for tests: its engine, as the Python package chDB has it, behind HTTP; and Debian's server, which is
// old. Input: a directory. Output: a URL. Callers: tests of the exporter and of the engine of queries.
package clickhouse

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/python"
)

//go:embed shim.py
var shim string

// Server is an engine that may be stopped, and started again with the same data at the same port.
type Server struct {
	URL  string
	In   func(func() error) error // where it is started from now on; nil: here
	dir  string
	port string
	cmd  *exec.Cmd
	said *await.Text
}

// Start starts an engine; the test is skipped where it is not installed.
func Start(t testing.TB) *Server {
	t.Helper()
	if err := python.Command(t.Context(), "-c", "import chdb").Run(); err != nil {
		t.Skip("the Python package chdb-core is not installed: scripts/setup test")
	}
	s := &Server{dir: t.TempDir(), port: "0"}
	s.Again(t)
	t.Cleanup(s.Stop)
	return s
}

// Again starts it after Stop.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	s.cmd = python.Command(context.Background(), "-c", shim, s.dir, s.port)
	s.said = &await.Text{} // of what it finds missing in a box, too
	s.cmd.Stderr = s.said
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := s.cmd.Start
	if s.In != nil {
		begin = func() error { return s.In(s.cmd.Start) }
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the engine does not start: %v: %s", err, s.said)
	}
	s.port = strings.TrimSpace(line)
	s.URL = "http://127.0.0.1:" + s.port
}

// Stop kills it.
func (s *Server) Stop() {
	if s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// Query asks a statement, and returns the answer.
func (s *Server) Query(t testing.TB, statement string) string {
	t.Helper()
	answer, err := post(s.URL, statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return answer
}

func post(at, statement string) (string, error) {
	resp, err := http.Post(at+"/?"+url.Values{"wait_end_of_query": {"1"}}.Encode(), "text/plain", strings.NewReader(statement))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return strings.TrimSpace(string(text)), err
}

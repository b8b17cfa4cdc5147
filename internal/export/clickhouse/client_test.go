package clickhouse

import (
	"context"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/clickhouse"
)

// TestDebianServer: a real server takes what the client sends, and each of its errors comes with what to do about it.
func TestDebianServer(t *testing.T) {
	at := clickhouse.Debian(t)
	file := filepath.Join(t.TempDir(), "password")
	connect := func(password string) *Client {
		t.Helper()
		if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := NewClient(Server{URL: at, User: "default", PasswordFile: file, Timeout: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	c := connect(clickhouse.Password)
	run := func(c *Client, statement string) (string, error) {
		body, err := c.Select(t.Context(), statement, url.Values{"enable_http_compression": {"1"}})
		if err != nil {
			return "", err
		}
		defer body.Close()
		b, err := io.ReadAll(body)
		return string(b), err
	}
	if _, err := run(c, "CREATE TABLE t (a UInt64, b String) ENGINE = MergeTree ORDER BY a"); err != nil {
		t.Fatal(err)
	}
	if err := c.Insert(t.Context(), "INSERT INTO t FORMAT JSONEachRow", url.Values{}, []byte(`{"a": 7, "b": "x\ty"}`)); err != nil {
		t.Fatal(err)
	}
	if got, err := run(c, "SELECT a, b FROM t FORMAT RowBinary"); err != nil || got != "\x07\x00\x00\x00\x00\x00\x00\x00\x03x\ty" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := run(c, "SELECT number FROM numbers(100000) FORMAT TabSeparated"); err != nil || strings.Count(got, "\n") != 100000 {
		t.Errorf("%d bytes of a compressed answer, %v", len(got), err)
	}
	insert := func(statement string, settings url.Values, row string) error {
		return c.Insert(t.Context(), statement, settings, []byte(row))
	}
	_, wrong := run(connect("wrong"), "SELECT 1")
	for what, tt := range map[string]struct {
		err  error
		want []string
	}{
		"password": {wrong, []string{"password", "export.clickhouse.password_file"}},
		"table":    {insert("INSERT INTO default.flows FORMAT JSONEachRow", url.Values{}, "{}"), []string{"flows", "waymark config clickhouse"}},
		"database": {insert("INSERT INTO waymark.flows FORMAT JSONEachRow", url.Values{}, "{}"), []string{"waymark", "export.clickhouse.database"}},
		"column":   {insert("INSERT INTO t (c) FORMAT JSONEachRow", url.Values{}, "{}"), []string{"c", "--upgrade"}},
		"setting":  {insert("INSERT INTO t FORMAT JSONEachRow", url.Values{"insert_deduplication_token": {"x"}}, "{}"), []string{"insert_deduplication_token", "24.3"}},
		"ended": {func() error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return c.Insert(ctx, "INSERT INTO t FORMAT JSONEachRow", url.Values{}, nil)
		}(), []string{"canceled"}},
	} {
		for _, part := range tt.want {
			if tt.err == nil || !strings.Contains(tt.err.Error(), part) {
				t.Errorf("%s: %v, want %s", what, tt.err, part)
			}
		}
		if tt.err != nil && strings.Contains(tt.err.Error(), "\n") {
			t.Errorf("%s: several lines: %q", what, tt.err)
		}
	}
}

package console

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func packed(text string) *fstest.MapFile {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	w.Close()
	return &fstest.MapFile{Data: b.Bytes()}
}

// built is a console with the page that is embedded, whatever was built.
func built(t *testing.T) *Console {
	t.Helper()
	index, err := assets.ReadFile("assets/index.html")
	if err != nil {
		t.Fatal(err)
	}
	c, ok := read(fstest.MapFS{"index.html": {Data: index}, "app.js.gz": packed("let a = 1"), "app.css.gz": packed("a { }")})
	if !ok {
		t.Fatal("no console")
	}
	return c
}

func get(c *Console, path, encoding string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w.Result()
}

// Every page is the same document, which loads nothing but what is served here, under names that
// change with the content.
func TestPages(t *testing.T) {
	c := built(t)
	var first string
	for _, path := range []string{"/", "/explore", "/flow/tcp/[2001:db8::1]:1/[2001:db8::2]:2", "/docs"} {
		resp := get(c, path, "gzip")
		body, _ := io.ReadAll(resp.Body)
		if first == "" {
			first = string(body)
		}
		if !Serves(path) || resp.StatusCode != 200 || string(body) != first || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: %d %v\n%s", path, resp.StatusCode, resp.Header, body)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	if regexp.MustCompile(`(src|href)="(https?:)?//`).MatchString(first) || strings.Contains(first, "<script>") || strings.Contains(first, " style=") {
		t.Errorf("the page loads something from elsewhere, or has a script or style inside:\n%s", first)
	}
	for kind, want := range map[string]string{"js": "let a = 1", "css": "a { }"} {
		at := regexp.MustCompile(`/assets/[0-9a-f]{12}/app\.` + kind).FindString(first)
		for _, encoding := range []string{"gzip, br", ""} {
			resp := get(c, at, encoding)
			body := io.Reader(resp.Body)
			if encoding != "" {
				if resp.Header.Get("Content-Encoding") != "gzip" {
					t.Errorf("%s is not compressed", at)
				}
				body, _ = gzip.NewReader(body)
			}
			text, err := io.ReadAll(body)
			if string(text) != want || err != nil || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/") {
				t.Errorf("%s as %q: %q %v %v", at, encoding, text, err, resp.Header)
			}
		}
	}
}

func TestNoSuchPath(t *testing.T) {
	for path, want := range map[string]bool{
		"/": true, "/explore": true, "/explore/more": true, "/flow/tcp/a/b": true, "/assets/x/app.js": true,
		"/api/v1/flows": false, "/explorer": false, "/favicon.ico": false, "/metrics": false,
	} {
		if Serves(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	if resp := get(built(t), "/assets/000000000000/app.js", ""); resp.StatusCode != 404 {
		t.Errorf("an asset of another version: %d", resp.StatusCode)
	}
	if _, ok := read(fstest.MapFS{"index.html": {}}); ok {
		t.Error("a console without what it loads")
	}
}

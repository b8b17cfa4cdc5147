// Package console serves the web console: one page with its script and style, embedded in the
// binary. Input: requests for pages. Output: files that `make build` made of web/. What the pages
// show, they ask of the API. Callers: package api, which serves it under the same address.
package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
)

// assets has index.html and, after `make build`, what it loads, compressed.
//
//go:embed assets
var assets embed.FS

// Pages are the paths that show a page; below those that end with a slash, every path does.
var Pages = []string{"/", "/explore", "/flow/", "/map", "/hosts", "/gate", "/docs"}

// assetsPath is where the script and the style are, each under the hash of its content.
const assetsPath = "/assets/"

// policy allows what is served here, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

var types = map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// file is an asset, as it is sent.
type file struct {
	mime       string
	compressed []byte // by gzip
	plain      []byte
}

// Console serves the pages.
type Console struct {
	index []byte
	files map[string]file // by path
}

// New reads what is embedded. ok is false where the binary was built without the console.
func New() (c *Console, ok bool) {
	sub, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, false
	}
	return read(sub)
}

func read(from fs.FS) (c *Console, ok bool) {
	c = &Console{files: map[string]file{}}
	var err error
	if c.index, err = fs.ReadFile(from, "index.html"); err != nil {
		return nil, false
	}
	for _, name := range []string{"app.js", "app.css"} {
		f, hash, err := unpack(from, name)
		if err != nil {
			return nil, false
		}
		at := assetsPath + hash + "/" + name
		c.files[at] = f
		c.index = bytes.ReplaceAll(c.index, []byte(assetsPath+name), []byte(at))
	}
	return c, true
}

// unpack reads a compressed file; its path has the hash of its content, so that a browser may
// keep it forever.
func unpack(from fs.FS, name string) (f file, hash string, err error) {
	if f.compressed, err = fs.ReadFile(from, name+".gz"); err != nil {
		return f, "", err
	}
	r, err := gzip.NewReader(bytes.NewReader(f.compressed))
	if err != nil {
		return f, "", err
	}
	if f.plain, err = io.ReadAll(r); err != nil {
		return f, "", err
	}
	f.mime = types[path.Ext(name)]
	sum := sha256.Sum256(f.plain)
	return f, hex.EncodeToString(sum[:6]), nil
}

// Serves reports whether a path is one of the console's.
func Serves(at string) bool {
	return strings.HasPrefix(at, assetsPath) || slices.ContainsFunc(Pages, func(p string) bool {
		return at == p || p != "/" && strings.HasPrefix(at, strings.TrimSuffix(p, "/")+"/")
	})
}

// ServeHTTP answers with a page, which is the same for all paths, or with what it loads.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if f, ok := c.files[r.URL.Path]; ok {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("Vary", "Accept-Encoding")
		send(w, r, f)
		return
	}
	if strings.HasPrefix(r.URL.Path, assetsPath) {
		http.Error(w, "no such file; reload the page: the agent was updated", http.StatusNotFound)
		return
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	send(w, r, file{mime: "text/html; charset=utf-8", plain: c.index})
}

// send writes a file, compressed where it is and the reader takes it.
func send(w http.ResponseWriter, r *http.Request, f file) {
	w.Header().Set("Content-Type", f.mime)
	body := f.plain
	if f.compressed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		body = f.compressed
	}
	_, _ = w.Write(body) // the reader may be gone
}

// Missing answers for a console that was not built.
func Missing(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "this waymark was built without its console; install Node.js 18 or later with npm, and run 'make build'", http.StatusNotFound)
}

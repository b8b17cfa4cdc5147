package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/waymark-net/waymark/internal/export/clienttls"
	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// maxAnswer is how much of an answer is read, in bytes.
const maxAnswer = 64 << 10

// client posts requests to one path of a collector. One goroutine uses it.
type client struct {
	url    string
	files  clienttls.Files
	header http.Header
	http   http.Client
	zip    *gzip.Writer // nil: requests are not compressed
	body   bytes.Buffer
}

// newClient prepares requests for a path such as /v1/logs. Files of the configuration are read now.
func newClient(cfg Config, path string) (*client, error) {
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("export.otlp.endpoint: %w", err)
	}
	c := &client{
		url:    u.JoinPath(path).String(),
		files:  clienttls.Files{Section: "export.otlp", CA: cfg.CA, Cert: cfg.Cert, Key: cfg.Key},
		header: http.Header{"Content-Type": {"application/x-protobuf"}, "User-Agent": {"waymark/" + cfg.Resource.Version}},
	}
	if err := addHeaders(c.header, cfg.HeadersFile); err != nil {
		return nil, err
	}
	if cfg.Gzip {
		c.zip, _ = gzip.NewWriterLevel(&c.body, gzip.BestSpeed)
		c.header.Set("Content-Encoding", "gzip")
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Control: ownsocket.Control}).DialContext,
		MaxConnsPerHost:     1,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: cfg.Timeout,
	}
	if transport.TLSClientConfig, err = c.files.Config(""); err != nil {
		return nil, err
	}
	c.http = http.Client{
		Transport: transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// addHeaders adds the lines "Name: value" of a file, which may hold secrets. Empty lines and those that begin with # say nothing.
func addHeaders(to http.Header, file string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("export.otlp.headers_file: %w: set it to a file with lines such as \"Authorization: Bearer …\"", err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || !isFieldValue(strings.TrimSpace(value)) {
			return fmt.Errorf("export.otlp.headers_file: %s:%d is not a header: write lines such as \"Authorization: Bearer …\"", file, n)
		}
		to.Set(name, strings.TrimSpace(value))
	}
	return nil
}

// isToken: RFC 9110 section 5.6.2.
func isToken(s string) bool {
	return s != "" && strings.IndexFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}) < 0
}

// isFieldValue: RFC 9110 section 5.5.
func isFieldValue(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) < 0
}

// refusal is an answer other than success.
type refusal struct {
	status  int
	message string        // of the collector; may be empty
	after   time.Duration // Retry-After
}

func (r *refusal) Error() string {
	text := fmt.Sprintf("the collector answers %d %s", r.status, http.StatusText(r.status))
	if r.message != "" {
		text += ": " + r.message
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text += ": set export.otlp.headers_file, or cert and key, to what it expects"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		text += ": set export.otlp.endpoint to where it takes OTLP over HTTP, mostly port 4318"
	case http.StatusUnsupportedMediaType:
		text += ": it takes no protobuf, or nothing compressed: set export.otlp.compression: none"
	}
	return text
}

// again reports whether the same request may succeed later (OTLP specification, "Failures").
func (r *refusal) again() bool {
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// post sends the parts as one request, and returns the answer of a collector that took it. The error is a *refusal where it did not.
func (c *client) post(ctx context.Context, parts ...[]byte) (answer []byte, err error) {
	c.body.Reset()
	var to io.Writer = &c.body
	if c.zip != nil {
		c.zip.Reset(&c.body)
		to = c.zip
	}
	for _, p := range parts {
		_, _ = to.Write(p) // to memory
	}
	if c.zip != nil {
		_ = c.zip.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(c.body.Bytes()))
	if err != nil {
		return nil, err
	}
	req.Header = c.header
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.files.Explain("export.otlp.endpoint", "a collector", err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 == 2 {
		if err != nil { // it may have taken the request
			return nil, c.files.Explain("export.otlp.endpoint", "a collector", err)
		}
		return answer, nil
	}
	return nil, &refusal{status: resp.StatusCode, message: message(resp.Header, answer), after: retryAfter(resp.Header, time.Now())}
}

// message is what a refusal says: a google.rpc.Status, or text.
func message(h http.Header, answer []byte) string {
	text := string(answer)
	if strings.HasPrefix(h.Get("Content-Type"), "application/x-protobuf") {
		text = ""
		eachField(answer, func(n protowire.Number, _ uint64, b []byte) {
			if n == 2 {
				text = string(b)
			}
		})
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if !utf8.ValidString(text) {
		return ""
	}
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}

// longestWait bounds what a collector may ask for.
const longestWait = 5 * time.Minute

// retryAfter: RFC 9110 section 10.2.3, in seconds or as a date; 0: the collector does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, longestWait)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), longestWait)
	}
	return 0
}

// eachField calls a function with each field of a message: numbers, or bytes. A message that is cut ends there.
func eachField(b []byte, f func(n protowire.Number, number uint64, bytes []byte)) {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return
		}
		b = b[size:]
		switch kind {
		case protowire.VarintType:
			v, size := protowire.ConsumeVarint(b)
			if size < 0 {
				return
			}
			f(n, v, nil)
			b = b[size:]
		case protowire.BytesType:
			v, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return
			}
			f(n, 0, v)
			b = b[size:]
		default:
			size := protowire.ConsumeFieldValue(n, kind, b)
			if size < 0 {
				return
			}
			b = b[size:]
		}
	}
}

// close ends the connection.
func (c *client) close() { c.http.CloseIdleConnections() }

package clickhouse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waymark-net/waymark/internal/export/clienttls"
	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// Server is where ClickHouse answers HTTP, and as whom it is asked.
type Server struct {
	URL           string // http:// or https://
	User          string // empty: default
	PasswordFile  string // empty: no password
	CA, Cert, Key string // https: PEM files
	Timeout       time.Duration
}

// Client sends statements. Several goroutines may use it.
type Client struct {
	server Server
	url    *url.URL
	files  clienttls.Files
	header http.Header
	http   http.Client
}

// section is of the configuration.
const section = "export.clickhouse"

// NewClient prepares requests. Files of the configuration are read now.
func NewClient(s Server) (*Client, error) {
	u, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf(section+".url: %w", err)
	}
	c := &Client{
		server: s, url: u, files: clienttls.Files{Section: section, CA: s.CA, Cert: s.Cert, Key: s.Key},
		header: http.Header{"User-Agent": {"waymark"}},
	}
	if s.User != "" {
		c.header.Set("X-ClickHouse-User", s.User)
	}
	if s.PasswordFile != "" {
		b, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf(section+".password_file: %w: set it to a file with the password in its first line", err)
		}
		line, _, _ := strings.Cut(string(b), "\n")
		c.header.Set("X-ClickHouse-Key", strings.TrimRight(line, "\r"))
	}
	transport := &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     (&net.Dialer{Control: ownsocket.Control}).DialContext,
		MaxConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: s.Timeout,
	}
	if transport.TLSClientConfig, err = c.files.Config(""); err != nil {
		return nil, err
	}
	c.http = http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Exception is an error that the server answers.
type Exception struct {
	Status int // of HTTP
	Code   int // of ClickHouse; 0: not known
	Text   string
}

// The codes of ClickHouse that have a remedy, or mean that no repetition helps.
const (
	codeNoSuchColumn      = 16
	codeReadAfterEnd      = 32
	codeReadAll           = 33
	codeUnknownIdentifier = 47
	codeTypeMismatch      = 53
	codeUnknownTable      = 60
	codeUnknownDatabase   = 81
	codeUnknownSetting    = 115
	codeIncorrectData     = 117
	codeReadonly          = 164
	codeUnknownUser       = 192
	codeWrongPassword     = 193
	codeTooManyParts      = 252
	codeAccessDenied      = 497
	codeAuthentication    = 516
)

const schemaRemedy = ": create tables with: waymark config clickhouse | clickhouse-client --multiquery"

func (e *Exception) Error() string {
	text := fmt.Sprintf("ClickHouse answers %d %s", e.Status, http.StatusText(e.Status))
	if e.Text != "" {
		text += ": " + e.Text
	}
	switch e.Code {
	case codeUnknownTable, codeUnknownDatabase:
		text += schemaRemedy + ", or set " + section + ".database and " + section + ".table to those that it has"
	case codeNoSuchColumn, codeUnknownIdentifier, codeTypeMismatch:
		text += ": the tables are of another version: add columns with: waymark config clickhouse --upgrade | clickhouse-client --multiquery"
	case codeUnknownUser, codeWrongPassword, codeAuthentication:
		text += ": set " + section + ".user and " + section + ".password_file to what it expects"
	case codeAccessDenied, codeReadonly:
		text += ": grant INSERT and SELECT on the tables to " + section + ".user"
	case codeUnknownSetting:
		text += ": this ClickHouse is too old, 24.3 is the first that is supported"
	case codeTooManyParts:
		text += ": there are more inserts than it merges; raise flow.scan_interval"
	case 0:
		if e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed {
			text += ": set " + section + ".url to where ClickHouse answers HTTP, mostly port 8123, or 8443 with TLS"
		}
	}
	return text
}

// refused reports whether the data is what the server does not take, so that no repetition helps.
func (e *Exception) refused() bool {
	return e.Code == codeReadAfterEnd || e.Code == codeReadAll || e.Code == codeIncorrectData
}

// maxText is how much of an error is read, in bytes.
const maxText = 16 << 10

// Insert sends data for an INSERT statement, with settings.
func (c *Client) Insert(ctx context.Context, statement string, settings url.Values, data []byte) error {
	settings.Set("query", statement)
	ctx, cancel := context.WithTimeout(ctx, c.server.Timeout)
	defer cancel()
	body, err := c.post(ctx, settings, data)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(body, maxText))
	return c.explain(err)
}

// Select asks a query with parameters, and returns its answer in the format that the text asks for.
func (c *Client) Select(ctx context.Context, text string, settings url.Values) (io.ReadCloser, error) {
	settings.Set("wait_end_of_query", "1") // an error is an answer of its own then, not the end of one that began well
	return c.post(ctx, settings, []byte(text))
}

func (c *Client) post(ctx context.Context, settings url.Values, body []byte) (io.ReadCloser, error) {
	u := *c.url
	values := u.Query()
	for k, v := range settings {
		values[k] = v
	}
	u.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = c.header
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxText)) // a part of it says something, too
	return nil, exception(resp, string(text))
}

var (
	codeText = regexp.MustCompile(`^Code: (\d+)[.,] ?(?:e\.displayText\(\) = )?(?:DB::Exception: )?`)
	tailText = regexp.MustCompile(` ?\(version [^()]*(\([^()]*\))?\)\s*$|, e\.what\(\) = .*$`)
)

// exception reads an answer such as "Code: 60. DB::Exception: Table a.b does not exist. (UNKNOWN_TABLE) (version 26.9.2.1)".
func exception(resp *http.Response, text string) *Exception {
	e := &Exception{Status: resp.StatusCode}
	e.Code, _ = strconv.Atoi(resp.Header.Get("X-ClickHouse-Exception-Code"))
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if m := codeText.FindStringSubmatch(text); m != nil {
		e.Code, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	text = strings.TrimRight(tailText.ReplaceAllString(text, ""), ". ")
	if !utf8.ValidString(text) {
		text = ""
	}
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	e.Text = text
	return e
}

// explain adds the remedy of an error on the way.
func (c *Client) explain(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return c.files.Explain(section+".url", "ClickHouse", err)
}

// Close ends the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

package analyzer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/frame"
	"github.com/waymark-net/waymark/internal/export/clienttls"
	"github.com/waymark-net/waymark/internal/export/ownsocket"
)

// section is of the configuration.
const section = "export.analyzer"

// client sends requests to an analyzer.
type client struct {
	base  *url.URL
	rate  uint32 // of sampling
	trip  time.Duration
	files clienttls.Files
	http  http.Client
}

func newClient(cfg Config) (*client, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf(section+".url: %w", err)
	}
	c := &client{
		base:  u,
		rate:  cfg.Sampling,
		files: clienttls.Files{Section: section, CA: cfg.CA, Cert: cfg.Cert, Key: cfg.Key},
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Control: ownsocket.Control}).DialContext,
		MaxConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: cfg.Timeout,
	}
	if transport.TLSClientConfig, err = c.files.Config(""); err != nil {
		return nil, err
	}
	transport.TLSClientConfig.MinVersion = tls.VersionTLS13
	c.http = http.Client{
		Transport: transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// refusal is an answer other than success.
type refusal struct {
	status int
	text   string
	reason string
	after  time.Duration
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the analyzer answers %d: %s", r.status, r.text)
}

// maxAnswer is how much of an answer is read, in bytes, and longestWait bounds what an analyzer may ask for.
const (
	maxAnswer   = 64 << 10
	longestWait = 5 * time.Minute
)

// post sends frames, or a topology. What an answer has kept is valid whether there is an error or not.
func (c *client) post(ctx context.Context, path string, body []byte, version string, lost uint64) (a frame.Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	began := time.Now()
	req.Header = http.Header{
		frame.VersionHeader: {frame.Version}, frame.AgentHeader: {version},
		frame.NowHeader: {strconv.FormatInt(began.UnixNano(), 10)}, frame.LostHeader: {strconv.FormatUint(lost, 10)},
		frame.TripHeader: {strconv.FormatInt(int64(c.trip), 10)}, frame.SamplingHeader: {strconv.FormatUint(uint64(c.rate), 10)},
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return a, c.files.Explain(section+".url", "the analyzer", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	var all struct {
		frame.Answer
		What string `json:"what"`
		How  string `json:"how"`
	}
	if parsed := json.Unmarshal(text, &all); parsed != nil {
		all.What = strings.TrimSpace(string(text))
	}
	if resp.StatusCode == http.StatusOK {
		if all.Took > 0 {
			c.trip = max(time.Since(began)-all.Took, 0)
		}
		return all.Answer, err
	}
	r := &refusal{status: resp.StatusCode, text: all.What, reason: resp.Header.Get(frame.ReasonHeader)}
	if all.How != "" {
		r.text += ": " + all.How
	}
	if n, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
		r.after = min(time.Duration(n)*time.Second, longestWait)
	}
	return all.Answer, r
}

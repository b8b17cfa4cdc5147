package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
)

// maxAnswer bounds what a client reads of one answer, in bytes.
const maxAnswer = 512 << 20

// ErrNoAgent says that no one answers on the socket.
var ErrNoAgent = errors.New("is the agent running? start it with: sudo waymark run")

// Client asks the agent behind a unix socket.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient makes a client that has asked nothing yet.
func NewClient(socket string) *Client {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		},
		ResponseHeaderTimeout: queryWait + writeTimeout,
		DisableCompression:    true,
	}}}
}

// Status asks how the agent does.
func (c *Client) Status(ctx context.Context) (obs.Status, error) {
	var s obs.Status
	err := c.get(ctx, "/api/v1/status", func(body *answers) error { return body.next(&s) })
	return s, err
}

// Flows asks once.
func (c *Client) Flows(ctx context.Context, r Request) (Answer, error) {
	r.Follow = false
	var a Answer
	err := c.get(ctx, "/api/v1/flows?"+r.Values().Encode(), func(body *answers) error { return body.next(&a) })
	return a, err
}

// Explain asks what a request would take.
func (c *Client) Explain(ctx context.Context, r Request) (e query.Explanation, err error) {
	err = c.get(ctx, "/api/v1/explain?"+r.Values().Encode(), func(body *answers) error { return body.next(&e) })
	return e, err
}

// Follow calls emit with an answer for each interval until ctx ends, the agent
// stops, or emit fails. The end of the agent is nil.
func (c *Client) Follow(ctx context.Context, r Request, emit func(Answer) error) error {
	r.Follow = true
	return c.get(ctx, "/api/v1/flows?"+r.Values().Encode(), func(body *answers) error {
		for {
			var a Answer
			err := body.next(&a)
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			}
			if err := emit(a); err != nil {
				return err
			}
		}
	})
}

// Wait returns when the agent is ready, or with its last refusal when ctx ends.
func (c *Client) Wait(ctx context.Context) error {
	var refused error
	for {
		err := c.get(ctx, "/readyz", func(*answers) error { return nil })
		switch {
		case err == nil:
			return nil
		case ctx.Err() == nil:
			refused = err
		case refused == nil:
			return err
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return refused
		case <-timer.C:
		}
	}
}

// get reads the body of an answer, or the agent's refusal.
func (c *Client) get(ctx context.Context, path string, read func(*answers) error) error {
	return c.ask(ctx, http.MethodGet, path, nil, read)
}

func (c *Client) ask(ctx context.Context, method, path string, body io.Reader, read func(*answers) error) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://waymark"+path, body)
	if err != nil {
		return fmt.Errorf("ask the agent: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	if err := read(newAnswers(resp.Body)); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// explain turns what the dialer says into what the user can do.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent answers on %s: %w", c.socket, ErrNoAgent)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("ask the agent on %s: %w; run this as root or as a member of the socket's group", c.socket, fs.ErrPermission)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return fmt.Errorf("ask the agent on %s: %w", c.socket, err)
}

func refusal(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("read the agent's refusal: %w", err)
	}
	e := &Error{Status: resp.StatusCode}
	if json.Unmarshal(body, e) != nil || e.What == "" {
		e.What = fmt.Sprintf("the agent answers %s: %s", resp.Status, bytes.TrimSpace(body))
	}
	return e
}

// answers reads JSON values one after the other, none longer than maxAnswer.
type answers struct {
	body    io.Reader
	left    int64
	decoder *json.Decoder
}

func newAnswers(body io.Reader) *answers {
	a := &answers{body: body}
	a.decoder = json.NewDecoder(a)
	return a
}

func (a *answers) next(v any) error {
	a.left = maxAnswer
	return a.decoder.Decode(v)
}

// Read implements io.Reader for the decoder.
func (a *answers) Read(b []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("it is longer than %d bytes; ask for less with --limit or --filter", int64(maxAnswer))
	}
	n, err := a.body.Read(b[:min(int64(len(b)), a.left)])
	a.left -= int64(n)
	return n, err
}

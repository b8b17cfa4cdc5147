package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/config"
)

// HealthConfig is how backends are checked.
type HealthConfig struct {
	Type     string        `yaml:"type" default:"auto" oneof:"auto none tcp http tls udp" doc:"tcp: a connection opens; tls: and a handshake of TLS ends; http: the answer to GET has a status below 400; udp: request gets an answer. auto: tcp for TCP, none for others. none: backends are always healthy"`
	Interval time.Duration `yaml:"interval" default:"2s" min:"100ms" max:"1h" doc:"time between checks"`
	Timeout  time.Duration `yaml:"timeout" default:"1s" min:"10ms" max:"1m" doc:"a check that takes longer has failed"`
	Rise     uint32        `yaml:"rise" default:"2" min:"1" max:"100" doc:"checks in a row that have to succeed until a backend is healthy"`
	Fall     uint32        `yaml:"fall" default:"3" min:"1" max:"100" doc:"checks in a row that have to fail until it is not"`
	Path     string        `yaml:"path" default:"/" doc:"http: what is asked for"`
	Host     string        `yaml:"host" doc:"http and tls: name of the server; empty: the address of the service"`
	Request  string        `yaml:"request" doc:"udp: what is sent: text, or hexadecimal after 0x"`
	Answer   string        `yaml:"answer" doc:"udp: how the answer begins, likewise; empty: any answer will do"`
}

// kind is the type of check of a service.
func (h *HealthConfig) kind(s *ServiceConfig) string {
	if h.Type != "auto" {
		return h.Type
	}
	if s.Protocol == "tcp" {
		return "tcp"
	}
	return "none"
}

func (h *HealthConfig) check(at string, s *ServiceConfig, complain config.Complain) {
	kind := h.kind(s)
	if (kind == "udp") != (s.Protocol != "tcp") && kind != "none" {
		complain(at+".type", fmt.Sprintf("a service over %s does not answer checks of type %s", s.Protocol, kind), "write tcp, http or tls for tcp, and udp for udp and quic, or none")
	}
	if kind == "udp" && h.Request == "" {
		complain(at+".request", "there is nothing to send", "write what the service answers, such as 0x and hexadecimal digits")
	}
	for key, text := range map[string]string{"request": h.Request, "answer": h.Answer} {
		if _, err := payload(text); err != nil {
			complain(at+"."+key, err.Error(), "write text, or 0x and two digits for each byte")
		}
	}
	if !strings.HasPrefix(h.Path, "/") {
		complain(at+".path", fmt.Sprintf("%q is no path", h.Path), "write it like /healthz")
	}
}

// payload is text, or hexadecimal after 0x.
func payload(text string) ([]byte, error) {
	digits, ok := strings.CutPrefix(text, "0x")
	if !ok {
		return []byte(text), nil
	}
	b, err := hex.DecodeString(digits)
	if err != nil {
		return nil, fmt.Errorf("%q is not hexadecimal", text)
	}
	return b, nil
}

// watcher checks a backend until it is stopped.
type watcher struct {
	service *ServiceConfig
	at      balance.Address
	backend netip.Addr
	dial    func(ctx context.Context, network, to string) (net.Conn, error)
	changed func(up bool, why string)
}

// run checks, from a moment of its own on. up is what is known so far.
func (w *watcher) run(ctx context.Context, up bool, first time.Duration) {
	h := &w.service.Health
	var row uint32 // checks in a row that say otherwise
	next := time.NewTimer(first)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		err := w.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if (err == nil) == up {
			row = 0
		} else if row++; up && row >= h.Fall || !up && row >= h.Rise {
			up, row = !up, 0
			why := ""
			if err != nil {
				why = err.Error()
			}
			w.changed(up, why)
		}
		next.Reset(h.Interval)
	}
}

// probe is one check.
func (w *watcher) probe(ctx context.Context) error {
	h := &w.service.Health
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	network := "tcp"
	if w.service.Protocol != "tcp" {
		network = "udp"
	}
	c, err := w.dial(ctx, network, netip.AddrPortFrom(w.at.Addr, w.at.Port).String())
	if err != nil {
		return err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	switch h.kind(w.service) {
	case "http":
		return w.askHTTP(ctx, c)
	case "tls":
		return tls.Client(c, w.tls()).HandshakeContext(ctx)
	case "udp":
		return w.askUDP(c)
	}
	return nil
}

// tls asks for no certificate: that is between the backend and its clients.
func (w *watcher) tls() *tls.Config {
	return &tls.Config{ServerName: w.host(), InsecureSkipVerify: true} //nolint:gosec // whether it serves is asked, not who it is
}

func (w *watcher) host() string {
	if w.service.Health.Host != "" {
		return w.service.Health.Host
	}
	return w.at.Addr.String()
}

func (w *watcher) askHTTP(ctx context.Context, c net.Conn) error {
	client := http.Client{
		Transport:     &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+netip.AddrPortFrom(w.at.Addr, w.at.Port).String()+w.service.Health.Path, nil)
	if err != nil {
		return err
	}
	if w.service.Health.Host != "" {
		r.Host = w.service.Health.Host
	}
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<16)) // the status is what counts
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("GET %s: %s", w.service.Health.Path, answer.Status)
	}
	return nil
}

func (w *watcher) askUDP(c net.Conn) error {
	request, _ := payload(w.service.Health.Request) // checked when it was read
	want, _ := payload(w.service.Health.Answer)
	if _, err := c.Write(request); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(answer[:n], want) {
		return errors.New("the answer is another one")
	}
	return nil
}

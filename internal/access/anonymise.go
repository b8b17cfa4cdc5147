package access

import (
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"strings"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
)

// anonymiser gives callers answers in which each address is replaced by another one. They ask with those, too: a filter
// means the addresses that its replacements stand for. It works on text, because every answer is text: what is added to the
// API later can't be forgotten here.
type anonymiser struct {
	pan    *cryptoPAn
	random bool // the key is in no file
}

// known are paths whose answers are made of the program and of the question alone.
var known = map[string]bool{"/api/v1/complete": true, "/api/v1/reference": true}

// serve lets a request through with the addresses of the caller replaced, and its answer likewise.
func (a *anonymiser) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if known[r.URL.Path] {
		next.ServeHTTP(w, r)
		return
	}
	r, refused := a.question(r)
	if refused != nil {
		refused.Answer(w)
		return
	}
	answer := &answer{ResponseWriter: w, pan: a.pan}
	next.ServeHTTP(answer, r)
	answer.finish()
}

// question is a request in the terms of the agent.
func (a *anonymiser) question(r *http.Request) (*http.Request, *api.Error) {
	r = r.Clone(r.Context())
	r.Header.Del("Accept-Encoding") // what is compressed can't be replaced
	values := r.URL.Query()
	for _, text := range values["sort"] {
		name, _, _ := strings.Cut(text, "/")
		if f := flow.FieldNamed(name); f != nil && f.Kind == flow.Address {
			return nil, &api.Error{Status: http.StatusForbidden, What: "the order by " + name + " would show that of the addresses which are replaced", How: "sort by a counter"}
		}
	}
	for i, text := range values["filter"] {
		f, err := filter.Parse(text)
		if err != nil {
			continue // refused by the one who is asked
		}
		values["filter"][i] = f.MapPrefixes(func(p netip.Prefix) netip.Prefix { return a.pan.prefix(p, true) }).String()
	}
	r.URL.RawQuery = values.Encode()
	return r, nil
}

// How an answer is treated, by its type. What is not here is refused.
const (
	refuseBody = iota
	replaceBody
	passBody // a file of the console, which is the same for everyone
)

var treatments = map[string]int{
	"": replaceBody, "application/json": replaceBody, "application/jsonl": replaceBody, "text/plain": replaceBody,
	"text/event-stream": replaceBody, "text/csv": replaceBody, "application/openmetrics-text": replaceBody,
	"text/html": passBody, "text/css": passBody, "text/javascript": passBody, "image/svg+xml": passBody, "image/png": passBody,
}

// answer replaces addresses on the way.
type answer struct {
	http.ResponseWriter
	pan       *cryptoPAn
	began     bool
	treatment int
	left      []byte // the begin of a word
}

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// FlushError is for http.ResponseController: a handler that flushes sends its header.
func (a *answer) FlushError() error {
	if !a.began {
		a.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.began {
		return
	}
	a.began = true
	h := a.Header()
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	a.treatment = treatments[kind]
	if a.treatment == refuseBody {
		h.Del("Content-Length")
		refused := &api.Error{Status: http.StatusForbidden, What: fmt.Sprintf("addresses in %s cannot be replaced", kind), How: "ask for JSON"}
		refused.Answer(a.ResponseWriter)
		return
	}
	if a.treatment == replaceBody {
		h.Del("Content-Length")
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (a *answer) Write(b []byte) (int, error) {
	if !a.began {
		a.WriteHeader(http.StatusOK)
	}
	switch a.treatment {
	case refuseBody:
		return len(b), nil
	case passBody:
		return a.ResponseWriter.Write(b)
	}
	out, left := a.pan.text(nil, append(a.left, b...), true)
	a.left = append([]byte(nil), left...)
	if _, err := a.ResponseWriter.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// finish writes what was held back.
func (a *answer) finish() {
	if len(a.left) == 0 || a.treatment != replaceBody {
		return
	}
	out, _ := a.pan.text(nil, a.left, false)
	_, _ = a.ResponseWriter.Write(out) // the reader may be gone
}

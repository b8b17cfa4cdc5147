package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/suggest"
)

// whyPath is where the API has verdicts.
const whyPath = "/api/v1/why"

// whyTimeout is how long an answer may take.
const whyTimeout = 20 * time.Second

// WhyRequest asks what is wrong. Each field is a parameter of the URL.
type WhyRequest struct {
	Filter       string // filter: an expression of package filter
	Since, Until string // since, until: as timespec.Since reads them; empty: ten minutes ago, now
}

// WhyParameters are those of /api/v1/why.
func WhyParameters() []Parameter {
	return []Parameter{
		{"filter", "Only flows that the expression means; what is not of flows is not examined then"},
		{"since", "Begin of the time that is examined, as for /api/v1/flows; `10m` when left out"},
		{"until", "Its end, likewise; now when left out"},
	}
}

func (r *WhyRequest) fields() map[string]*string {
	return map[string]*string{"filter": &r.Filter, "since": &r.Since, "until": &r.Until}
}

// Values are the parameters.
func (r WhyRequest) Values() url.Values {
	v := url.Values{}
	for name, value := range r.fields() {
		if *value != "" {
			v.Set(name, *value)
		}
	}
	return v
}

func parseWhy(v url.Values) (r WhyRequest, err error) {
	names := []string{"filter", "since", "until"}
	for name, values := range v {
		field := r.fields()[name]
		switch {
		case field == nil && suggest.Nearest(name, names) != "":
			return r, refuse(fmt.Sprintf("parameter %q is not known", name), "did you mean "+suggest.Nearest(name, names)+"?")
		case field == nil:
			return r, refuse(fmt.Sprintf("parameter %q is not known", name), "there are "+strings.Join(names, ", "))
		case len(values) != 1:
			return r, refuse(fmt.Sprintf("parameter %s is given %d times", name, len(values)), "give it once")
		}
		*field = values[0]
	}
	return r, nil
}

// Range checks the request; times that are not given are zero.
func (r WhyRequest) Range(now time.Time) (since, until time.Time, err error) {
	if _, err := filter.Parse(r.Filter); err != nil {
		return since, until, refuse(err.Error(), "")
	}
	if since, err = parsePast("since", r.Since, now); err != nil {
		return since, until, err
	}
	if until, err = parsePast("until", r.Until, now); err != nil {
		return since, until, err
	}
	end := until
	if end.IsZero() {
		end = now
	}
	if !since.IsZero() && !since.Before(end) {
		return since, until, refuse(fmt.Sprintf("since %s is not before until %s", since.Format(time.DateTime), end.Format(time.DateTime)), "exchange them, or leave until out")
	}
	return since, until, nil
}

// answerWhy answers with verdicts.
func (s *Server) answerWhy(w http.ResponseWriter, r *http.Request) error {
	return s.examined(w, r, s.deps.Why)
}

// examined answers with what is found in the records of a time.
func (s *Server) examined(w http.ResponseWriter, r *http.Request, find func(context.Context, WhyRequest) (any, error)) error {
	req, err := parseWhy(r.URL.Query())
	if err != nil {
		return err
	}
	if _, _, err := req.Range(time.Now()); err != nil {
		return err
	}
	done, err := s.admit(w, r)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), whyTimeout)
	defer cancel()
	answer, err := find(ctx, req)
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{http.StatusServiceUnavailable, fmt.Sprintf("the history of that time is not examined within %v", whyTimeout), "choose a shorter time with since and until"}
	}
	if err != nil {
		return err
	}
	s.deadline(w)
	s.writeJSON(w, answer)
	return nil
}

// Why asks what is wrong, and reads the answer.
func (c *Client) Why(ctx context.Context, r WhyRequest, into any) error {
	return c.get(ctx, whyPath+"?"+r.Values().Encode(), func(body *answers) error { return body.next(into) })
}

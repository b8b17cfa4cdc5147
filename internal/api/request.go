package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/suggest"
	"github.com/waymark-net/waymark/internal/timespec"
)

// Request asks for flows. Each field is a parameter of the URL.
type Request struct {
	Filter  string // filter: an expression of package filter
	By      string // by: keys with commas, as store.ParseBy reads them
	Sort    string // sort: a counter or one of the keys
	Reverse bool   // reverse: the smallest first
	Limit   int    // limit: rows; 0: all
	// Everywhere: count a packet on each interface that it passes; else once, in
	// rows that are of no interface.
	Everywhere bool
	Since      string        // since: as timespec.Since reads it; empty: all that is kept
	Follow     bool          // follow: one answer for each interval that ends
	Every      time.Duration // every: with follow, ask for intervals as short as this
}

// MinEvery bounds what a follower may ask for.
const MinEvery = time.Second

// Parameter is a name that a URL may have.
type Parameter struct{ Name, Doc string }

// Parameters are those of /api/v1/flows.
func Parameters() []Parameter { return parameters }

var parameters = []Parameter{
	{"filter", "Only records that the expression means"},
	{"by", "Keys to merge records by, with commas; `flow` when left out"},
	{"sort", "What decides the order; `bytes` when left out"},
	{"reverse", "`true`: the order the other way round"},
	{"everywhere", "`true`: a packet counts on each interface that it passes; left out, it counts once, in totals and in rows that are of no interface"},
	{"limit", "Rows to answer with; `0` and nothing: all"},
	{"since", "Only intervals that ended after it: a duration back from now (`5m`, `1d`), a time of day (`09:50`, in the agent's time zone) or a date with a time (RFC 3339)"},
	{"follow", "`true`: an answer for each interval that ends from now on, one a line"},
	{"every", "With `follow`: ask for intervals as short as this, at least " + MinEvery.String()},
}

func parameterNames() []string {
	names := make([]string, len(parameters))
	for i, p := range parameters {
		names[i] = p.Name
	}
	return names
}

// Values is the inverse of parseRequest.
func (r Request) Values() url.Values {
	v := url.Values{}
	set := func(name, value string, given bool) {
		if given {
			v.Set(name, value)
		}
	}
	set("filter", r.Filter, r.Filter != "")
	set("by", r.By, r.By != "")
	set("sort", r.Sort, r.Sort != "")
	set("reverse", "true", r.Reverse)
	set("everywhere", "true", r.Everywhere)
	set("limit", strconv.Itoa(r.Limit), r.Limit != 0)
	set("since", r.Since, r.Since != "")
	set("follow", "true", r.Follow)
	set("every", r.Every.String(), r.Every != 0)
	return v
}

// parseRequest reads the parameters of a URL.
func parseRequest(v url.Values) (r Request, err error) {
	for name, values := range v {
		if len(values) != 1 {
			return r, refuse(fmt.Sprintf("parameter %s is given %d times", name, len(values)), "give it once")
		}
		if err := r.set(name, values[0]); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *Request) set(name, value string) (err error) {
	switch name {
	case "filter":
		r.Filter = value
	case "by":
		r.By = value
	case "sort":
		r.Sort = value
	case "since":
		r.Since = value
	case "reverse":
		r.Reverse, err = parseBool(name, value)
	case "everywhere":
		r.Everywhere, err = parseBool(name, value)
	case "follow":
		r.Follow, err = parseBool(name, value)
	case "limit":
		n, bad := strconv.ParseUint(value, 10, 31)
		if bad != nil {
			return refuse(fmt.Sprintf("limit %q is not a number of rows", value), "write one like 20, or 0 for all")
		}
		r.Limit = int(n)
	case "every":
		d, bad := time.ParseDuration(value)
		if bad != nil || d < MinEvery {
			return refuse(fmt.Sprintf("every %q is no duration of at least %v", value, MinEvery), "write one like 2s")
		}
		r.Every = d
	default:
		if near := suggest.Nearest(name, parameterNames()); near != "" {
			return refuse(fmt.Sprintf("parameter %q is not known", name), "did you mean "+near+"?")
		}
		return refuse(fmt.Sprintf("parameter %q is not known", name), "there are "+strings.Join(parameterNames(), ", "))
	}
	return err
}

// Query checks the request and turns it into what the store understands.
func (r Request) Query(now time.Time) (q store.Query, err error) {
	if q.Filter, err = filter.Parse(r.Filter); err != nil {
		return q, refuse(err.Error(), "")
	}
	if r.By != "" {
		if q.By, err = store.ParseBy(r.By); err != nil {
			return q, refuse(err.Error(), "")
		}
	}
	if q.Since, err = parseSince(r.Since, now); err != nil {
		return q, err
	}
	q.Sort, q.Reverse, q.Limit, q.Everywhere = r.Sort, r.Reverse, r.Limit, r.Everywhere
	return q, nil
}

// parseSince reads a duration back from now, or a time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := timespec.Since(text, now)
	if err != nil {
		return t, refuse(fmt.Sprintf("since %q is neither a duration nor a time", text), err.Error())
	}
	return t, nil
}

func parseBool(name, value string) (bool, error) {
	switch value {
	case "true", "1", "":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, refuse(fmt.Sprintf("%s %q is neither true nor false", name, value), "write "+name+"=true or leave it out")
}

func refuse(what, how string) *Error {
	return &Error{Status: http.StatusBadRequest, What: what, How: how}
}

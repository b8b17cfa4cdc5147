package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/suggest"
	"github.com/waymark-net/waymark/internal/timespec"
)

// Request asks for flows. Each field is a parameter of the URL.
type Request struct {
	Filter  string // filter: an expression of package filter
	By      string // by: keys with commas, as query.ParseBy reads them
	Sort    string // sort: a counter or one of the keys
	Reverse bool   // reverse: the smallest first
	Limit   int    // limit: rows; 0: all
	Sums    string // sums: counters with commas; empty: rows have all that is known of their records
	// Everywhere: count a packet on each interface that it passes; else once, in
	// rows that are of no interface.
	Everywhere bool
	Hosts      string        // hosts: whose records, with commas; empty: of all
	Since      string        // since: as timespec.Since reads it; empty: all that is kept
	Until      string        // until: likewise; empty: now
	Step       time.Duration // step: a row of each group for each step of time; 0: one for all
	Timeout    time.Duration // timeout: after which the answer is what was found until then; 0: the default
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
	{"everywhere", "`true`: a packet counts on each interface that it passes, and at each host of an analyzer; left out, it counts once, in totals and in rows that are of no interface"},
	{"hosts", "Names of hosts, with commas: only their records, as these hosts saw them; left out, those of all that an analyzer has"},
	{"limit", "Rows to answer with; `0` and nothing: all"},
	{"sums", "Counters that rows and totals have, with commas; all others are 0. Of files, only their columns are read: left out, rows have all that is known of their records"},
	{"since", "Only intervals that ended after it: a duration back from now (`5m`, `1d`), a time of day (`09:50`, in the agent's time zone) or a date with a time (RFC 3339)"},
	{"until", "Only intervals that began before it, written as `since`"},
	{"step", "A row of each group for each step of time (`1m`, `1h`), with its begin in the field `time`; `limit` counts groups, which are chosen by all their time, and then stand in the field `whole`"},
	{"timeout", "Time after which the answer is what was found until then, marked as `partial`; `" + query.DefaultBudget().Time.String() + "` when left out"},
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
	set("hosts", r.Hosts, r.Hosts != "")
	set("limit", strconv.Itoa(r.Limit), r.Limit != 0)
	set("sums", r.Sums, r.Sums != "")
	set("since", r.Since, r.Since != "")
	set("until", r.Until, r.Until != "")
	set("step", r.Step.String(), r.Step != 0)
	set("timeout", r.Timeout.String(), r.Timeout != 0)
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
	case "sums":
		r.Sums = value
	case "hosts":
		r.Hosts = value
	case "since":
		r.Since = value
	case "until":
		r.Until = value
	case "step":
		r.Step, err = parseTime(name, value, query.MinStep)
	case "timeout":
		r.Timeout, err = parseTime(name, value, time.Millisecond)
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
		r.Every, err = parseTime(name, value, MinEvery)
	default:
		if near := suggest.Nearest(name, parameterNames()); near != "" {
			return refuse(fmt.Sprintf("parameter %q is not known", name), "did you mean "+near+"?")
		}
		return refuse(fmt.Sprintf("parameter %q is not known", name), "there are "+strings.Join(parameterNames(), ", "))
	}
	return err
}

// Query checks the request and turns it into what the store understands.
func (r Request) Query(now time.Time) (q query.Plan, err error) {
	if q.Filter, err = filter.Parse(r.Filter); err != nil {
		return q, refuse(err.Error(), "")
	}
	if r.By != "" {
		if q.By, err = query.ParseBy(r.By); err != nil {
			return q, refuse(err.Error(), "")
		}
	}
	if q.Since, err = parsePast("since", r.Since, now); err != nil {
		return q, err
	}
	if q.Until, err = parsePast("until", r.Until, now); err != nil {
		return q, err
	}
	if r.Follow && (r.Until != "" || r.Step != 0) {
		return q, refuse("until and step are of the past", "leave them out, or follow")
	}
	q.Sort, q.Reverse, q.Limit, q.Everywhere = r.Sort, r.Reverse, r.Limit, r.Everywhere
	q.Step, q.Budget.Time = r.Step, r.Timeout
	if r.Hosts != "" {
		q.Hosts = strings.Split(r.Hosts, ",")
	}
	if r.Sums != "" {
		q.Sums = strings.Split(r.Sums, ",")
	}
	return q, nil
}

// parsePast reads a duration back from now, or a time.
func parsePast(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := timespec.Since(text, now)
	if err != nil {
		return t, refuse(fmt.Sprintf("%s %q is neither a duration nor a time", name, text), err.Error())
	}
	return t, nil
}

func parseTime(name, value string, least time.Duration) (time.Duration, error) {
	d, err := timespec.Duration(value)
	if err != nil || d < least {
		return 0, refuse(fmt.Sprintf("%s %q is no duration of at least %v", name, value, least), "write one like "+max(least, 2*time.Second).String())
	}
	return d, nil
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

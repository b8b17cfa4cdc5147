package analyze

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// Status is the section analyze of the status. Counters run since the analyzer started.
type Status struct {
	Listen      string            `json:"listen"`
	Fingerprint string            `json:"fingerprint"` // of the CA, SHA-256
	Hosts       []HostStatus      `json:"hosts"`
	Refused     map[string]uint64 `json:"refused"` // requests of nobody who is known, by reason
}

// HostStatus is how one host does.
type HostStatus struct {
	Name        string            `json:"name"`
	Version     string            `json:"version,omitempty"` // of its agent; absent: it did not send since the analyzer started
	Address     string            `json:"address,omitempty"`
	Seen        time.Time         `json:"seen,omitzero"` // when it sent last
	Last        time.Time         `json:"last,omitzero"` // end of its latest interval
	Lag         float64           `json:"lag,omitempty"` // seconds since then, by the clock of the host
	ClockOffset time.Duration     `json:"clock_offset_ns"`
	Expires     time.Time         `json:"expires,omitzero"` // its certificate
	Serial      string            `json:"serial,omitempty"` // of it, for analyze.revoked
	Intervals   uint64            `json:"intervals"`        // kept
	Records     uint64            `json:"records"`          // in them
	Bytes       uint64            `json:"bytes"`            // received for them
	Repeated    uint64            `json:"repeated"`         // intervals that were sent again, and are kept once
	Restored    uint64            `json:"restored"`         // times that the agent went on from an earlier state
	Missing     uint64            `json:"missing"`          // intervals that the agent lost, by their numbers
	Lost        uint64            `json:"lost"`             // records that the agent says it lost
	Refused     map[string]uint64 `json:"refused"`          // requests, by reason
	History     obs.History       `json:"history"`
	Problems    []string          `json:"problems"` // with their remedies
}

// silent is after how long without an interval a host is a problem.
const silent = 2 * time.Minute

func (h *host) status(now time.Time) HostStatus {
	history := h.disk.Status()
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.state
	s.History = history
	s.Refused = map[string]uint64{}
	for reason, n := range h.state.Refused {
		s.Refused[reason] = n
	}
	s.Problems = []string{}
	for _, text := range h.problem {
		s.Problems = append(s.Problems, text)
	}
	slices.Sort(s.Problems)
	if !s.Last.IsZero() {
		s.Lag = now.Add(s.ClockOffset).Sub(s.Last).Seconds()
	}
	if age := now.Sub(s.Seen); s.Seen.IsZero() || age > silent {
		when := "since the analyzer started"
		if !s.Seen.IsZero() {
			when = "for " + age.Round(time.Second).String()
		}
		s.Problems = append(s.Problems, "it has sent nothing "+when+": see waymark status there")
	}
	if s.Missing > 0 {
		s.Problems = append(s.Problems, fmt.Sprintf("%d intervals were lost at the agent: set export.analyzer.size there to more", s.Missing))
	}
	if history.Failing != "" {
		s.Problems = append(s.Problems, "its records cannot be kept: "+history.Failing)
	}
	if n := history.Counts.GivenUp; n > 0 {
		s.Problems = append(s.Problems, fmt.Sprintf("%d records were lost here, because no file could be made of a log: make space below analyze.path", n))
	}
	return s
}

func (a *Analyzer) section() *Status {
	print := a.authority.Fingerprint()
	s := &Status{Listen: a.cfg.Listen, Fingerprint: fmt.Sprintf("%x", print), Hosts: []HostStatus{}, Refused: map[string]uint64{}}
	now := a.clock()
	for _, h := range a.all() {
		s.Hosts = append(s.Hosts, h.status(now))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for reason, n := range a.refusals {
		s.Refused[reason] = n
	}
	return s
}

const sectionName = "analyze"

// Text writes the section for waymark status.
func Text(w io.Writer, status *obs.Status) error {
	s := obs.SectionOf[Status](status, sectionName)
	if s == nil {
		return nil
	}
	fmt.Fprintf(w, "analyzer  waymark %s on %s, pid %d, up %s; agents send to %s, CA %s\n", status.Version, status.Host, status.PID,
		term.Duration(status.Now.Sub(status.Started)), s.Listen, s.Fingerprint)
	for _, reason := range sorted(s.Refused) {
		fmt.Fprintf(w, "refused   %s: %s\n", reason, term.Number(s.Refused[reason], "requests"))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nHOST\tVERSION\tLAG\tCLOCK\tINTERVALS\tRECORDS\tMISSING\tREFUSED\tDISK\tFROM")
	for i := range s.Hosts {
		h := &s.Hosts[i]
		var refused uint64
		for _, n := range h.Refused {
			refused += n
		}
		lag, clock := "-", "-"
		if !h.Last.IsZero() {
			lag, clock = term.Duration(time.Duration(h.Lag*float64(time.Second))), h.ClockOffset.Round(time.Millisecond).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%sB\t%s\n", h.Name, cmp.Or(term.Printable(h.Version), "-"), lag, clock, h.Intervals, h.Records, h.Missing, refused,
			term.Count(h.History.Bytes), h.History.Oldest.Local().Format(time.DateTime))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range s.Hosts {
		for _, problem := range s.Hosts[i].Problems {
			if _, err := fmt.Fprintf(w, "%s: %s\n", s.Hosts[i].Name, term.Printable(problem)); err != nil {
				return err
			}
		}
	}
	return nil
}

func sorted(m map[string]uint64) (names []string) {
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Metrics are those of an analyzer.
func Metrics() []prometheus.Metric {
	perHost := func(value func(*HostStatus) float64) prometheus.Collect {
		return func(s *obs.Status, sample func(float64, ...string)) {
			if own := obs.SectionOf[Status](s, sectionName); own != nil {
				for i := range own.Hosts {
					sample(value(&own.Hosts[i]), own.Hosts[i].Name)
				}
			}
		}
	}
	host := []string{"host"}
	return []prometheus.Metric{
		{Name: "waymark_analyze_intervals_total", Type: prometheus.Counter, Labels: host, Help: "Intervals of an agent that an analyzer keeps (waymark analyze).", Collect: perHost(func(h *HostStatus) float64 { return float64(h.Intervals) })},
		{Name: "waymark_analyze_records_total", Type: prometheus.Counter, Labels: host, Help: "Records in them.", Collect: perHost(func(h *HostStatus) float64 { return float64(h.Records) })},
		{Name: "waymark_analyze_received_bytes_total", Type: prometheus.Counter, Unit: "bytes", Labels: host, Help: "Bytes received for them.", Collect: perHost(func(h *HostStatus) float64 { return float64(h.Bytes) })},
		{Name: "waymark_analyze_repeated_intervals_total", Type: prometheus.Counter, Labels: host, Help: "Intervals that an agent sent again, and that are kept once.", Collect: perHost(func(h *HostStatus) float64 { return float64(h.Repeated) })},
		{Name: "waymark_analyze_missing_intervals_total", Type: prometheus.Counter, Labels: host, Help: "Intervals that an agent lost before they were sent.", Collect: perHost(func(h *HostStatus) float64 { return float64(h.Missing) })},
		{Name: "waymark_analyze_lag_seconds", Type: prometheus.Gauge, Unit: "seconds", Labels: host, Help: "Time since the end of the latest interval, by the clock of the host.", Collect: perHost(func(h *HostStatus) float64 { return h.Lag })},
		{Name: "waymark_analyze_clock_offset_seconds", Type: prometheus.Gauge, Unit: "seconds", Labels: host, Help: "How far the clock of the host is ahead of the analyzer's.", Collect: perHost(func(h *HostStatus) float64 { return h.ClockOffset.Seconds() })},
		{Name: "waymark_analyze_disk_bytes", Type: prometheus.Gauge, Unit: "bytes", Labels: host, Help: "Bytes of the files of a host.", Collect: perHost(func(h *HostStatus) float64 { return float64(h.History.Bytes) })},
		{Name: "waymark_analyze_problems", Type: prometheus.Gauge, Labels: host, Help: "Problems of a host that waymark status names.", Collect: perHost(func(h *HostStatus) float64 { return float64(len(h.Problems)) })},
		{
			Name: "waymark_analyze_refused_requests_total", Type: prometheus.Counter, Labels: []string{"host", "reason"}, Help: "Requests that were refused; without a host: of nobody who is known.",
			Collect: func(s *obs.Status, sample func(float64, ...string)) {
				own := obs.SectionOf[Status](s, sectionName)
				if own == nil {
					return
				}
				for reason, n := range own.Refused {
					sample(float64(n), "", reason)
				}
				for i := range own.Hosts {
					for reason, n := range own.Hosts[i].Refused {
						sample(float64(n), own.Hosts[i].Name, reason)
					}
				}
			},
		},
	}
}

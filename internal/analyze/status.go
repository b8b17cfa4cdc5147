package analyze

import (
	"fmt"
	"slices"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/export/prometheus"
	"github.com/waymark-net/waymark/internal/obs"
)

// silent is after how long without an interval a host is a problem.
const silent = 2 * time.Minute

func (h *host) status(now, started time.Time, devices *device.Receiver) state.Host {
	sent, seen := devices.Device(h.name)
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
		s.Lag = now.Sub(s.Last).Seconds()
		if !h.device { // whose intervals have the times of the agent
			s.Lag += s.ClockOffset.Seconds()
		}
	}
	if s.Device = sent; sent != nil || h.device {
		s.Seen = seen
		s.Problems = append(s.Problems, deviceProblems(sent, now.Sub(seen))...)
	} else if age := min(now.Sub(s.Seen), now.Sub(started)); age > silent { // agents try again after up to half a minute
		when := "since the analyzer started"
		if !s.Seen.IsZero() {
			when = "for " + age.Round(time.Second).String()
		}
		s.Problems = append(s.Problems, "it has sent nothing "+when+": see waymark status there")
	}
	if s.Missing > 0 {
		s.Problems = append(s.Problems, fmt.Sprintf("%d intervals were lost at the agent: waymark status there says why; if its queue was full, set export.analyzer.size to more", s.Missing))
	}
	if history.Failing != "" {
		s.Problems = append(s.Problems, "its records cannot be kept: "+history.Failing)
	}
	if n := history.Counts.GivenUp; n > 0 {
		s.Problems = append(s.Problems, fmt.Sprintf("%d records were lost here, because no file could be made of a log: make space below analyze.path", n))
	}
	return s
}

func (a *Analyzer) section() *state.Status {
	print := a.authority.Fingerprint()
	s := &state.Status{Listen: a.cfg.Listen, Fingerprint: fmt.Sprintf("%x", print), Hosts: []state.Host{}, Refused: map[string]uint64{}, Receivers: a.devices.Status()}
	now := a.clock()
	for _, h := range a.all() {
		s.Hosts = append(s.Hosts, h.status(now, a.started, a.devices))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for reason, n := range a.refusals {
		s.Refused[reason] = n
	}
	return s
}

// Metrics are those of an analyzer.
func Metrics() []prometheus.Metric {
	perHost := func(value func(*state.Host) float64) prometheus.Collect {
		return func(s *obs.Status, sample func(float64, ...string)) {
			if own := obs.SectionOf[state.Status](s, state.Section); own != nil {
				for i := range own.Hosts {
					sample(value(&own.Hosts[i]), own.Hosts[i].Name)
				}
			}
		}
	}
	host := []string{"host"}
	return append(deviceMetrics(), []prometheus.Metric{
		{Name: "waymark_analyze_intervals_total", Type: prometheus.Counter, Labels: host, Help: "Intervals of an agent that an analyzer keeps (waymark analyze).", Collect: perHost(func(h *state.Host) float64 { return float64(h.Intervals) })},
		{Name: "waymark_analyze_records_total", Type: prometheus.Counter, Labels: host, Help: "Records in them.", Collect: perHost(func(h *state.Host) float64 { return float64(h.Records) })},
		{Name: "waymark_analyze_received_bytes_total", Type: prometheus.Counter, Unit: "bytes", Labels: host, Help: "Bytes received for them.", Collect: perHost(func(h *state.Host) float64 { return float64(h.Bytes) })},
		{Name: "waymark_analyze_repeated_intervals_total", Type: prometheus.Counter, Labels: host, Help: "Intervals that an agent sent again, and that are kept once.", Collect: perHost(func(h *state.Host) float64 { return float64(h.Repeated) })},
		{Name: "waymark_analyze_missing_intervals_total", Type: prometheus.Counter, Labels: host, Help: "Intervals that an agent lost before they were sent.", Collect: perHost(func(h *state.Host) float64 { return float64(h.Missing) })},
		{Name: "waymark_analyze_lag_seconds", Type: prometheus.Gauge, Unit: "seconds", Labels: host, Help: "Time since the end of the latest interval, by the clock of the host.", Collect: perHost(func(h *state.Host) float64 { return h.Lag })},
		{Name: "waymark_analyze_clock_offset_seconds", Type: prometheus.Gauge, Unit: "seconds", Labels: host, Help: "How far the clock of the host is ahead of the analyzer's.", Collect: perHost(func(h *state.Host) float64 { return h.ClockOffset.Seconds() })},
		{Name: "waymark_analyze_disk_bytes", Type: prometheus.Gauge, Unit: "bytes", Labels: host, Help: "Bytes of the files of a host.", Collect: perHost(func(h *state.Host) float64 { return float64(h.History.Bytes) })},
		{Name: "waymark_analyze_problems", Type: prometheus.Gauge, Labels: host, Help: "Problems of a host that waymark status names.", Collect: perHost(func(h *state.Host) float64 { return float64(len(h.Problems)) })},
		{
			Name: "waymark_analyze_refused_requests_total", Type: prometheus.Counter, Labels: []string{"host", "reason"}, Help: "Requests that were refused; without a host: of nobody who is known.",
			Collect: func(s *obs.Status, sample func(float64, ...string)) {
				own := obs.SectionOf[state.Status](s, state.Section)
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
	}...)
}

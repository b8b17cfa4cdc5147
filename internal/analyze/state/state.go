// Package state is the section of the status that an analyzer has. Input: what its hosts counted. Output: JSON, and the text of
// waymark status. Callers: the analyzer, which fills it, and the command line, which shows it.
package state

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
)

// Status is the section analyze of the status. Counters run since the analyzer started.
type Status struct {
	Listen      string            `json:"listen"`
	Fingerprint string            `json:"fingerprint"` // of the CA, SHA-256
	Hosts       []Host            `json:"hosts"`
	Refused     map[string]uint64 `json:"refused"` // requests of nobody who is known, by reason
	Receivers   []Receiver        `json:"receivers,omitempty"`
}

// Host is how one host does.
type Host struct {
	Name        string            `json:"name"`
	Version     string            `json:"version,omitempty"` // of its agent; absent: it did not send since the analyzer started
	Address     string            `json:"address,omitempty"`
	Seen        time.Time         `json:"seen,omitzero"` // when it sent last
	Last        time.Time         `json:"last,omitzero"` // end of its latest interval
	Lag         float64           `json:"lag,omitempty"` // seconds since then, by the clock of the host
	ClockOffset time.Duration     `json:"clock_offset_ns"`
	Sampling    uint32            `json:"sampling,omitempty"` // one packet in so many is counted; 0 or 1: each
	Expires     time.Time         `json:"expires,omitzero"`   // its certificate
	Serial      string            `json:"serial,omitempty"`   // of it, for analyze.revoked
	Topology    time.Time         `json:"topology,omitzero"`  // since when what it is connected with is as the analyzer has it; absent: it did not send it
	Intervals   uint64            `json:"intervals"`          // kept
	Records     uint64            `json:"records"`            // in them
	Bytes       uint64            `json:"bytes"`              // received for them
	Repeated    uint64            `json:"repeated"`           // intervals that were sent again, and are kept once
	Restored    uint64            `json:"restored"`           // times that the agent went on from an earlier state
	Missing     uint64            `json:"missing"`            // intervals that the agent lost, by their numbers
	Lost        uint64            `json:"lost"`               // records that the agent says it lost
	Refused     map[string]uint64 `json:"refused"`            // requests, by reason
	Device      *Device           `json:"device,omitempty"`   // it has no agent
	History     obs.History       `json:"history"`
	Problems    []string          `json:"problems"` // with their remedies
}

// Receiver is an address that devices send to.
type Receiver struct {
	Listen        string            `json:"listen"`
	Datagrams     uint64            `json:"datagrams"`
	Bytes         uint64            `json:"bytes"`
	Buffer        int               `json:"buffer"`                 // bytes that the kernel keeps at most
	KernelDropped uint64            `json:"kernel_dropped"`         // datagrams, because that was full
	Refused       map[string]uint64 `json:"refused"`                // datagrams, by reason
	LastRefused   string            `json:"last_refused,omitempty"` // address that the latest of these came from
}

// Device is what is known of a host without an agent.
type Device struct {
	Address    string            `json:"address"`
	Domain     uint32            `json:"domain"` // observation domain, source id, engine or sub-agent
	Protocols  []string          `json:"protocols"`
	Sampling   float64           `json:"sampling,omitempty"` // latest rate that counts were multiplied by; absent: 1
	Interfaces int               `json:"interfaces"`
	Datagrams  uint64            `json:"datagrams"`
	Records    uint64            `json:"records"`  // of flows; of sFlow, samples of packets
	Repeated   uint64            `json:"repeated"` // datagrams that came twice
	Waiting    int               `json:"waiting"`  // sets of records that wait for their template
	Summed     uint64            `json:"summed"`   // flows beyond what an interval holds
	Lost       map[string]uint64 `json:"lost"`     // by sequence numbers: datagrams or records
	Dropped    map[string]uint64 `json:"dropped"`  // what is in no flow, by reason
}

// Section is the name of the section.
const Section = "analyze"

// Text writes the section for waymark status.
func Text(w io.Writer, status *obs.Status) error {
	s := obs.SectionOf[Status](status, Section)
	if s == nil {
		return nil
	}
	fmt.Fprintf(w, "analyzer  waymark %s on %s, pid %d, up %s; agents send to %s, CA %s\n", status.Version, status.Host, status.PID,
		term.Duration(status.Now.Sub(status.Started)), s.Listen, s.Fingerprint)
	for _, reason := range sorted(s.Refused) {
		fmt.Fprintf(w, "refused   %s: %s\n", reason, term.Number(s.Refused[reason], "requests"))
	}
	for i := range s.Receivers {
		textReceiver(w, &s.Receivers[i])
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
	if err := errors.Join(t.Flush(), textDevices(w, s.Hosts)); err != nil {
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

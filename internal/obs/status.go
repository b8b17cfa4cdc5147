// Package obs is what the agent reports about itself: one Status, gathered on
// demand, that waymark status prints, the API serves and Prometheus exposes.
package obs

import (
	"time"

	"github.com/waymark-net/waymark/internal/flow"
)

// Status is the state of the agent at one moment. Counters run since it started.
type Status struct {
	Version string    `json:"version"`
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Now     time.Time `json:"now"`
	Probe   string    `json:"probe"` // ebpf or afpacket

	Hooks      []Hook      `json:"hooks"`
	Table      Table       `json:"table"`
	Memory     Memory      `json:"memory"`
	API        API         `json:"api"`
	Drain      Drain       `json:"drain"`
	Interfaces []Interface `json:"interfaces"`
	Totals     []Total     `json:"totals"`
	Exporters  []Exporter  `json:"exporters"`
	Losses     []Loss      `json:"losses"`
	Programs   []Program   `json:"programs"`
	History    *History    `json:"history,omitempty"` // absent: records are not kept on disk
	Topology   *Topology   `json:"topology,omitempty"`
	Access     *Access     `json:"access,omitempty"` // absent: an agent that serves nobody
	Sections   []Section   `json:"-"`                // of stages; in JSON, each is a field of its own
}

// Hook is one program on one interface.
type Hook struct {
	Iface     string `json:"iface"`
	Netns     string `json:"netns,omitempty"`
	IfIndex   uint32 `json:"ifindex"`
	Direction string `json:"direction"` // ingress or egress
	Mode      string `json:"mode"`      // tcx, clsact, afpacket; of a stage at XDP: xdp, xdp-generic
	State     string `json:"state"`     // attached, waiting, failed
	Error     string `json:"error,omitempty"`
	Warning   string `json:"warning,omitempty"` // why some packets may be missing although it is attached
}

// Place is the interface with its namespace, if that is not the agent's own.
func (h *Hook) Place() string {
	if h.Netns == "" || h.Iface == "" {
		return h.Netns + h.Iface
	}
	return h.Netns + "/" + h.Iface
}

// Place is an interface with its namespace, if that is not the agent's own.
func Place(netns, iface string) string {
	if netns == "" {
		return iface
	}
	return netns + "/" + iface
}

// Table is the flow table in the kernel and the one behind it in the agent.
type Table struct {
	MaxEntries   uint64 `json:"max_entries"`
	Entries      uint64 `json:"entries"` // slots in use at the last drain
	MemoryBytes  uint64 `json:"memory_bytes"`
	Evicted      uint64 `json:"evicted"`      // flows that left a full table through the ring
	Unattributed uint64 `json:"unattributed"` // packets whose flow could not be kept
	CountsFull   uint64 `json:"counts_full"`  // packets that not even a counter by reason had room for
	Live         uint64 `json:"live"`         // flows the agent holds until their timeout
	Shed         uint64 `json:"shed"`         // flows exported early, because the agent's table was full

	Grace time.Duration `json:"-"` // part of the last drain that waited for programs to end
}

// Memory is the memory that the agent plans with, and its components.
type Memory struct {
	Limit  uint64        `json:"limit"`          // bytes; 0: no control group limits them
	File   string        `json:"file,omitempty"` // where the limit is set
	Others uint64        `json:"others"`         // bytes of the limit that other processes held at the start
	Shares []MemoryShare `json:"shares"`
}

// MemoryShare is what one component takes at most.
type MemoryShare struct {
	Name   string `json:"name"`
	Key    string `json:"key,omitempty"` // of the configuration that bounds it
	Bytes  uint64 `json:"bytes"`
	Count  uint64 `json:"count"`  // elements it was given
	Wanted uint64 `json:"wanted"` // elements it would take without a limit
}

// API is the account of those who ask the agent. Counters run since it started.
type API struct {
	Connections int    `json:"connections"` // open now
	Evicted     uint64 `json:"evicted"`     // closed without a request, or while slow, to make room for others
	Followers   int    `json:"followers"`   // who read answers or marks as they come
	Dropped     uint64 `json:"dropped"`     // followers who were too slow
}

// Drain is the emptying of the kernel's table.
type Drain struct {
	Count    uint64        `json:"count"`
	Deltas   uint64        `json:"deltas"`
	Records  uint64        `json:"records"`
	Last     time.Duration `json:"last_ns"`  // duration of the last drain
	Grace    time.Duration `json:"grace_ns"` // part of it spent waiting for the other epoch
	Interval time.Duration `json:"interval_ns"`
	Errors   uint64        `json:"errors"`
}

// Interface compares what was counted with the interface's own counters, since
// the hook was attached and up to the last drain.
//
// Neither side is one number. An interface counts a GSO burst as one frame or
// as its segments, depending on its offloads; so the probe tells both. And its
// counters can't be read in the very moment of attaching or draining; so they
// are read before and after.
type Interface struct {
	Iface     string `json:"iface"`
	Netns     string `json:"netns,omitempty"`
	Direction string `json:"direction"`

	Frames     uint64 `json:"frames"`      // in flows; a burst is one
	FrameBytes uint64 `json:"frame_bytes"` // likewise
	Packets    uint64 `json:"packets"`     // in flows; a burst is its segments
	WireBytes  uint64 `json:"wire_bytes"`  // likewise

	IfacePacketsMin uint64 `json:"iface_packets_min"` // the interface's own, from behind the attaching to before the drain
	IfaceBytesMin   uint64 `json:"iface_bytes_min"`
	IfacePackets    uint64 `json:"iface_packets"` // from before the attaching to behind the drain
	IfaceBytes      uint64 `json:"iface_bytes"`

	Uncounted []Reason `json:"uncounted"` // in no flow, by reason

	// Coverage is what the probe saw, in flows or by reason, over what the
	// interface counted: 1 when packets and bytes can be equal, else the ratio
	// that is further from it. The bytes are compared with those of frames or of
	// segments, whichever the interface's packets are.
	Coverage float64 `json:"coverage"`
}

// Reason is an amount with the reason why it is in no flow record.
type Reason struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"` // on the wire
	Frames  uint64 `json:"frames"`  // skbs
	Bytes   uint64 `json:"bytes"`   // of the frames
}

// Total is the sum of all records of one protocol on one interface.
type Total struct {
	Iface     string `json:"iface"`
	Netns     string `json:"netns,omitempty"`
	Direction string `json:"direction"`
	Protocol  string `json:"protocol"` // tcp, udp, icmp, icmpv6, sctp, other
	flow.Counters
}

// Exporter is one output and its queue.
type Exporter struct {
	Name      string `json:"name"`
	Target    string `json:"target"`
	Queued    int    `json:"queued"`
	QueueSize int    `json:"queue_size"`
	// Of a queue on disk: the bytes that it has, and may have.
	QueuedBytes uint64 `json:"queued_bytes,omitempty"`
	QueueBytes  uint64 `json:"queue_bytes,omitempty"`
	Exported    uint64 `json:"exported"`
	Filtered    uint64 `json:"filtered"` // records that the exporter's filter does not match
	Retries     uint64 `json:"retries"`
	Lost        []Loss `json:"lost"`
	LastError   string `json:"last_error,omitempty"`
}

// Loss is an amount of records or packets that were lost, with the reason.
type Loss struct {
	Where  string `json:"where"`
	Reason string `json:"reason"`
	Count  uint64 `json:"count"`
}

// Program is the kernel's account of one BPF program. Run time is counted only
// while kernel.bpf_stats_enabled is 1.
type Program struct {
	Name     string        `json:"name"`
	ID       uint32        `json:"id"`
	RunCount uint64        `json:"run_count"`
	RunTime  time.Duration `json:"run_time_ns"`
}

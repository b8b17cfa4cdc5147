package bench

import (
	"fmt"
	"strings"

	"github.com/waymark-net/waymark/wire/ioam"
)

// Figures of the paper that a mode belongs to.
const (
	figureRegistered = "registered"
	// Not the paper's: what Linux itself takes, and what nodes do; and how many bytes fit in front of a burst.
	figureSocket     = "option of the socket"
	figureSize       = "size"
	figureInjection  = "injection"
	figureOptions    = "options"
	figureNamespaces = "namespaces"
)

// Lanes of a throughput: what runs on the five nodes.
const (
	laneBare = "no agent"
	laneOff  = "agents without IOAM"
	laneOn   = "agents with IOAM"
)

// ioamMode is one point of a figure.
type ioamMode struct {
	figure string
	name   string
	lane   string
	over   string  // name of the mode that it is compared with
	x      float64 // on the axis of the figure
	insert string  // of alpha's configuration, for packets to the port
	port   int     // of beta, for this mode alone
	header string  // Hop-by-Hop header that the sender's socket puts into each packet, and alpha nothing
}

// Names of modes that others refer to.
const (
	modeBare       = "no agent"
	modeOff        = "flows counted"
	modeRegistered = "IOAM registered"
	modeSocket     = "no agent, a trace from the socket"
	modeFilled     = "IOAM, a trace from the socket"
	modeAll        = "100 %"
	modeOne        = "1 %"
)

// insertion is the end of an entry of ioam.insert: a trace of each namespace, in one of so many packets.
func insertion(every int, spaces []int, copies int, fields string, nodeSize int) string {
	var traces []string
	for _, space := range spaces {
		for range copies {
			traces = append(traces, fmt.Sprintf("{trace: [%s], namespace: %d, size: %d}", fields, space, nodeSize*chainNodes))
		}
	}
	return fmt.Sprintf("every: %d, mode: inline, options: [%s]}", every, strings.Join(traces, ", "))
}

// chainNodes is how many nodes fill a trace, the first and the last included.
const chainNodes = 5

const (
	idFields    = "hop_limit_node_id"
	delayFields = "hop_limit_node_id, interface_ids, timestamp_seconds, timestamp_fraction, transit_delay"
)

// ioamModes are the points of the figures; with quick, a few of each.
func ioamModes(quick bool) ([]ioamMode, error) {
	header, err := traceHeader()
	if err != nil {
		return nil, fmt.Errorf("the header of a socket: %w", err)
	}
	modes := []ioamMode{
		{figure: figureRegistered, name: modeBare, lane: laneBare, over: modeBare},
		{figure: figureRegistered, name: modeOff, lane: laneOff, over: modeBare},
		{figure: figureRegistered, name: modeRegistered, lane: laneOn, over: modeOff},
		{figure: figureSocket, name: modeSocket, lane: laneBare, over: modeBare, header: header},
		{figure: figureSocket, name: modeFilled, lane: laneOn, over: modeRegistered, header: header},
	}
	for _, percent := range []float64{0.01, 0.1, 1, 2, 10, 25, 50, 100} {
		if quick && percent != 1 && percent != 100 {
			continue
		}
		every := int(100 / percent)
		modes = append(modes, ioamMode{
			figure: figureInjection, name: fmt.Sprintf("%g %%", percent), lane: laneOn, over: modeRegistered, x: percent,
			insert: insertion(every, []int{benchSpace}, 1, delayFields, 20),
		})
	}
	for n := 1; n <= 11; n++ {
		if quick && n != 1 && n != 11 {
			continue
		}
		modes = append(modes, ioamMode{
			figure: figureOptions, name: fmt.Sprintf("%d options", n), lane: laneOn, over: modeRegistered, x: float64(n),
			insert: insertion(1, []int{benchSpace}, n, idFields, 4),
		})
	}
	for n := 1; n <= benchSpaces; n++ {
		if quick && n != benchSpaces {
			continue
		}
		var spaces []int
		for i := range n {
			spaces = append(spaces, benchSpace+i)
		}
		modes = append(modes, ioamMode{
			figure: figureNamespaces, name: fmt.Sprintf("%d namespaces", n), lane: laneOn, over: modeRegistered, x: float64(n),
			insert: insertion(1, spaces, 1, idFields, 4),
		})
	}
	for _, nodeSize := range []int{4, 12, 16, 20, 48} {
		if quick && nodeSize != 4 && nodeSize != 48 {
			continue
		}
		bytes := (16 + nodeSize*chainNodes + 7) &^ 7 // of the whole header
		modes = append(modes, ioamMode{
			figure: figureSize, name: fmt.Sprintf("%d bytes", bytes), lane: laneOn, over: modeRegistered, x: float64(bytes),
			insert: insertion(1, []int{benchSpace}, 1, idFields, nodeSize),
		})
	}
	for i := range modes {
		modes[i].port = firstPort + i
	}
	return modes, nil
}

// firstPort of the modes, in a network of the benchmark's own.
const firstPort = 20000

// sent says whether a mode is measured in bursts, or in single packets.
func (m *ioamMode) sent(bursts bool) bool {
	switch m.figure {
	case figureRegistered, figureSocket:
		return true
	case figureSize: // the headroom of packets without payload in their pages is another
		return bursts
	}
	return !bursts || m.name == modeOne || m.name == modeAll
}

// insertions is ioam.insert of alpha.
func insertions(modes []ioamMode) string {
	var entries []string
	for _, m := range modes {
		if m.insert != "" {
			entries = append(entries, fmt.Sprintf("{name: p%d, to: \"2001:db8:4::/64\", proto: tcp, ports: [%d], %s", m.port, m.port, m.insert))
		}
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// traceHeader is the Hop-by-Hop header of modeAll, as a socket puts it into packets: with an empty trace. Without nodes on
// the path, it costs what Linux itself takes for such an option; with nodes, all but the insertion.
func traceHeader() (string, error) {
	trace, err := ioam.NewTrace(benchSpace, traceDelay, chainNodes*traceDelay.NodeSize(0))
	if err != nil {
		return "", err
	}
	header, err := ioam.AppendHeader(nil, 0, trace)
	return string(header), err
}

// benchSpaces is how many namespaces the nodes know.
const benchSpaces = 7

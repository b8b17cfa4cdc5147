package main

import (
	"fmt"
	"io"
)

// writeDecode is the page of what waymark decode prints.
func writeDecode(w io.Writer) error {
	p := newPage("Output of decode", "`waymark decode` reads a capture. These are the members of its JSON objects and the columns of its CSV tables; a value that is\n"+
		"not known is absent or empty. `-o json` is one object with `packets`, `flows` and `totals`; `-o jsonl` is an object per line, whose\n"+
		"`type` is `packet`, `flow` or `totals`. `-o csv` is one of three tables: packets with PDM, IOAM (`--show ioam`: a row per hop, or one\n"+
		"for an option without hops) or flows (`--show flows`). Flows have the names of a [flow record](record.md).")
	for _, s := range decodeSections {
		p.heading(2, s.title)
		if s.lead != "" {
			fmt.Fprintf(p, "\n%s\n", s.lead)
		}
		var rows [][]string
		for _, name := range s.names {
			text := s.texts[name]
			if text == "" {
				return fmt.Errorf("column %q of decode is not described: add it to reference_decode_test.go", name)
			}
			rows = append(rows, []string{code(name), text})
		}
		p.table("Name|Meaning", rows)
	}
	return p.writeTo(w)
}

var decodeSections = []struct {
	title, lead string
	names       []string
	texts       map[string]string
}{
	{"Packet", "", columnNames(endColumns), map[string]string{
		"frame": "Number of the frame in the file, from 1",
		"time":  "When it was captured, RFC 3339 in UTC",
		"proto": "Protocol number of the upper layer; a name in CSV",
		"src":   "Source address", "sport": "Source port, or the identifier of an ICMPv6 echo",
		"dst": "Destination address", "dport": "Destination port, or the identifier of an ICMPv6 echo",
	}},
	{"PDM of a packet", "", append(columnNames(pdmColumns), errorColumn.name), map[string]string{
		"psntp":      "Sequence number of this packet",
		"psnlr":      "Sequence number of the packet last received",
		"delta_tlr":  "Time since that packet was received, as on the wire",
		"scale_dtlr": "Its scale", "dtlr_ns": "The same in nanoseconds",
		"delta_tls":  "Time from the previous packet sent to what came next, as on the wire",
		"scale_dtls": "Its scale", "dtls_ns": "The same in nanoseconds",
		"arrival":    "Place in the sequence: `first`, `in_order`, `gap`, `reordered`, `duplicate` and others",
		"server_ns":  "Delay at the host that sent the packet",
		"path_ns":    "Round trip between the capture point and that host",
		"network_ns": "Round trip between the hosts, without their delays",
		"suspicious": "Why the packet is not counted in delays",
		"error":      "Why the extension headers or the PDM option cannot be read",
	}},
	{
		"IOAM options of a packet", "In JSON, `ioam` of a packet is an array of these. `--ioam-time` is the format of times, which is not on the wire.",
		columnNames(optionColumns),
		map[string]string{
			"option":          "pre-allocated trace, incremental trace, proof of transit, edge to edge, direct export",
			"namespace":       "Namespace-ID",
			"trace_type":      "Trace-Type in hexadecimal: the fields that nodes write or export",
			"flags":           "Of a trace: `overflow`, `loopback`, `active`, `reserved`, joined by `+`; else in hexadecimal, absent where 0",
			"node_len":        "NodeLen: length of the data of a node in units of 4 bytes, without the snapshot",
			"remaining_len":   "RemainingLen: free space in units of 4 bytes",
			"pot_type":        "POT-Type",
			"pkt_id":          "PktID in hexadecimal",
			"cumulative":      "Cumulative in hexadecimal",
			"e2e_type":        "E2E-Type in hexadecimal",
			"extension_flags": "Extension-Flags in hexadecimal",
			"flow_id":         "Flow ID",
			"sequence":        "Sequence number of an edge-to-edge or direct export option",
			"sent_seconds":    "When the packet entered the domain: seconds, as on the wire",
			"sent_fraction":   "The fraction, as on the wire",
			"sent":            "The same as a time",
			"problems":        "Everything that is wrong with the option, with the place in the packet; the rest is shown nevertheless",
		},
	},
	{
		"Hops of a trace", "In JSON, `hops` of a trace is an array of these, in the order in which the packet passed the nodes. A field that the trace lacks, or that\nthe node marked as not available, is absent.",
		columnNames(hopColumns),
		map[string]string{
			"hop":                    "Number of the hop in this list, from 1",
			"hop_limit":              "Hop limit with which the node sent the packet",
			"node_id":                "Node id",
			"ingress":                "Id of the interface that received the packet",
			"egress":                 "Id of the interface that sent it",
			"hop_limit_wide":         "Hop limit, of the field with the wide node id",
			"node_id_wide":           "Wide node id in hexadecimal",
			"ingress_wide":           "Wide id of the interface that received the packet",
			"egress_wide":            "Wide id of the interface that sent it",
			"seconds":                "When the node received the packet: seconds, as on the wire",
			"fraction":               "The fraction, as on the wire",
			"time":                   "The same as a time",
			"since_ns":               "Time since the node before received the packet, by the clocks of both",
			"transit_delay_ns":       "Time in the node",
			"transit_delay_overflow": "`true`: the packet was in the node for 2³¹ ns or longer",
			"namespace_data":         "Data of the namespace in hexadecimal",
			"queue_depth":            "Queue depth, in a unit of the node's choice",
			"checksum_complement":    "Checksum complement in hexadecimal",
			"namespace_data_wide":    "Wide data of the namespace in hexadecimal",
			"buffer_occupancy":       "Buffer occupancy, in a unit of the node's choice",
			"undefined":              "Fields of undefined bits in hexadecimal",
			"schema":                 "Schema id of the opaque state snapshot",
			"snapshot":               "Opaque state snapshot in hexadecimal",
		},
	},
	{"Totals", "", columnNames(totalColumns), map[string]string{
		"frames":          "Frames of the file",
		"unknown_link":    "Frames of an unknown link type",
		"ipv6_packets":    "IPv6 headers, those in tunnels too; from here on only what the filters let through",
		"pdm":             "Packets with PDM",
		"pdm_v2":          "Packets with PDMv2, which is not supported",
		"malformed":       "Packets with malformed extension headers or PDM",
		"ioam":            "Packets with IOAM",
		"ioam_malformed":  "Packets with an IOAM option that has problems",
		"flows_dropped":   "Flows that were dropped because the table was full",
		"packets_dropped": "Their packets",
	}},
}

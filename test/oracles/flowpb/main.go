// Command flowpb decodes messages of goflow2 by its own code. Input: messages on standard input, each behind its length. Output: one
// JSON object a line.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	flowpb "github.com/netsampler/goflow2/v2/pb"
	"google.golang.org/protobuf/encoding/protodelim"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "flowpb:", err)
		os.Exit(1)
	}
}

func run() error {
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var m flowpb.FlowMessage
		err := protodelim.UnmarshalFrom(in, &m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := out.Encode(map[string]any{
			"src": address(m.SrcAddr), "dst": address(m.DstAddr), "sport": m.SrcPort, "dport": m.DstPort, "proto": m.Proto,
			"bytes": m.Bytes, "packets": m.Packets, "first": m.TimeFlowStartNs, "last": m.TimeFlowEndNs, "received": m.TimeReceivedNs,
			"tos": m.IpTos, "tcp_flags": m.TcpFlags, "vlan": m.VlanId, "flow_label": m.Ipv6FlowLabel, "sampling": m.SamplingRate,
			"etype": m.Etype, "in": m.InIf, "out": m.OutIf, "icmp_type": m.IcmpType, "icmp_code": m.IcmpCode,
		}); err != nil {
			return err
		}
	}
}

// address is empty where there is none.
func address(b []byte) string {
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return ""
	}
	return a.String()
}

package datapath

import (
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// What package flow and bpf/abi.h both say, since flow does not import what is
// generated. A difference is an index out of range, and does not compile.
var (
	same [1]struct{}

	_ = same[flow.NetnsShift-ingressMetaIFACE_NETNS_SHIFT]
	_ = same[flow.OpeningSYN^flow.Opening(ingressOpeningOPENING_SYN)]
	_ = same[flow.OpeningSYNACK^flow.Opening(ingressOpeningOPENING_SYN_ACK)]
	_ = same[flow.Ingress^flow.Direction(ingressDirectionDIRECTION_INGRESS)]
	_ = same[flow.Egress^flow.Direction(ingressDirectionDIRECTION_EGRESS)]
	_ = same[flow.TunnelNone^flow.Tunnel(ingressTunnelTUNNEL_NONE)]
	_ = same[flow.TunnelVXLAN^flow.Tunnel(ingressTunnelTUNNEL_VXLAN)]
	_ = same[flow.TunnelGeneve^flow.Tunnel(ingressTunnelTUNNEL_GENEVE)]
	_ = same[flow.TunnelGRE^flow.Tunnel(ingressTunnelTUNNEL_GRE)]
	_ = same[flow.TunnelIPIP^flow.Tunnel(ingressTunnelTUNNEL_IPIP)]

	// The Go types have the size of the C ones: the generator may add no padding.
	_ = same[unsafe.Sizeof(slot{})-64]
	_ = same[unsafe.Offsetof(packetBatch{}.Packet)-64]
)

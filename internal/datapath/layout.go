package datapath

import (
	"unsafe"

	"github.com/waymark-net/waymark/internal/flow"
)

// What package flow and bpf/abi.h both say, since flow does not import what is
// generated. A difference is an index out of range, and does not compile.
var (
	same [1]struct{}

	_ = same[flow.NetnsShift-tcMetaIFACE_NETNS_SHIFT]
	_ = same[flow.OpeningSYN^flow.Opening(tcOpeningOPENING_SYN)]
	_ = same[flow.OpeningSYNACK^flow.Opening(tcOpeningOPENING_SYN_ACK)]
	_ = same[flow.Ingress^flow.Direction(tcDirectionDIRECTION_INGRESS)]
	_ = same[flow.Egress^flow.Direction(tcDirectionDIRECTION_EGRESS)]
	_ = same[flow.TunnelNone^flow.Tunnel(tcTunnelTUNNEL_NONE)]
	_ = same[flow.TunnelVXLAN^flow.Tunnel(tcTunnelTUNNEL_VXLAN)]
	_ = same[flow.TunnelGeneve^flow.Tunnel(tcTunnelTUNNEL_GENEVE)]
	_ = same[flow.TunnelGRE^flow.Tunnel(tcTunnelTUNNEL_GRE)]
	_ = same[flow.TunnelIPIP^flow.Tunnel(tcTunnelTUNNEL_IPIP)]

	// The Go types have the size of the C ones: the generator may add no padding.
	_ = same[unsafe.Sizeof(slot{})-64]
	_ = same[unsafe.Offsetof(packetBatch{}.Packet)-64]
)

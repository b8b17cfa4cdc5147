package flow

import "fmt"

// The names below are those of the JSON record; each type has a parser that is
// the inverse of its String method.

var directionNames = [...]string{Ingress: "ingress", Egress: "egress"}

func (d Direction) String() string { return nameOf(directionNames[:], int(d)) }

// ParseDirection is the inverse of Direction.String.
func ParseDirection(s string) (Direction, error) {
	i, err := indexOf(directionNames[:], s, "direction")
	return Direction(i), err
}

// IPFIX flowEndReason, in lower case with underscores.
var endReasonNames = [...]string{
	EndReasonNone:            "none",
	EndReasonIdleTimeout:     "idle_timeout",
	EndReasonActiveTimeout:   "active_timeout",
	EndReasonEndOfFlow:       "end_of_flow",
	EndReasonForcedEnd:       "forced_end",
	EndReasonLackOfResources: "lack_of_resources",
}

func (e EndReason) String() string { return nameOf(endReasonNames[:], int(e)) }

// ParseEndReason is the inverse of EndReason.String.
func ParseEndReason(s string) (EndReason, error) {
	i, err := indexOf(endReasonNames[:], s, "end reason")
	return EndReason(i), err
}

var tunnelNames = [...]string{
	TunnelNone:   "none",
	TunnelVXLAN:  "vxlan",
	TunnelGeneve: "geneve",
	TunnelGRE:    "gre",
	TunnelIPIP:   "ipip",
}

func (t Tunnel) String() string { return nameOf(tunnelNames[:], int(t)) }

// ParseTunnel is the inverse of Tunnel.String.
func ParseTunnel(s string) (Tunnel, error) {
	i, err := indexOf(tunnelNames[:], s, "tunnel")
	return Tunnel(i), err
}

var initiatorNames = [...]string{
	InitiatorUnknown: "unknown",
	InitiatorSrc:     "src",
	InitiatorDst:     "dst",
}

func (i Initiator) String() string { return nameOf(initiatorNames[:], int(i)) }

var evidenceNames = [...]string{
	EvidenceNone:      "none",
	EvidencePorts:     "ports",
	EvidenceFirst:     "first",
	EvidenceRequest:   "request",
	EvidenceHandshake: "handshake",
}

func (e Evidence) String() string { return nameOf(evidenceNames[:], int(e)) }

func nameOf(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

func indexOf(names []string, s, what string) (int, error) {
	for i, n := range names {
		if n == s {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s %q: want one of %q", what, s, names)
}

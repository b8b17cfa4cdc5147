package hops

import "net/netip"

// Way is a flow with its path.
type Way struct {
	Proto uint8      `json:"proto"`
	Src   netip.Addr `json:"src"`
	Sport uint16     `json:"sport"`
	Dst   netip.Addr `json:"dst"`
	Dport uint16     `json:"dport"`
	Path
}

// Ways are the answer of /api/v1/points.
type Ways struct {
	Flows      []Way    `json:"flows"`                // most packets first
	Others     int      `json:"others,omitempty"`     // flows that are left out
	Incomplete []string `json:"incomplete,omitempty"` // why records of some host are missing: counts cannot be compared with its
}

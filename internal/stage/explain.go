package stage

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/datapath"
)

// Explainer is a command below a verb: explain IFACE PACKET. It asks what would become of packets, by a dry run in the kernel.
type Explainer struct {
	Path                 string // of the page that answers a Question
	Short, Long, Example string
}

// ExplainPage is the page that answers for `waymark VERB explain`, without what answers. missing is said where the stage is off.
func ExplainPage(verb string, missing *api.Error) api.Page {
	return api.Page{
		Path: "/api/v1/" + verb + "/explain",
		Doc: "`POST {\"iface\": \"eth0\", \"packets\": [{\"data\": \"frame in base64\", \"to_interface\": true}]}`, as root, the agent's user or with the role admin: what would become of packets that arrive at an interface, by a dry run in the kernel, as `waymark " +
			verb + " explain -o json` shows it",
		Missing: missing,
	}
}

// MostTried is how many packets a question may have.
const MostTried = 256

// Question asks what would become of packets that arrive at an interface.
type Question struct {
	Iface   string        `json:"iface"`
	Packets []TriedPacket `json:"packets"`
}

// TriedPacket is an Ethernet frame.
type TriedPacket struct {
	Data        []byte `json:"data"`         // in JSON base64
	ToInterface bool   `json:"to_interface"` // its destination becomes the address of the interface
}

// Answer has what would become of each packet.
type Answer struct {
	Iface   string      `json:"iface"`
	Packets []Explained `json:"packets"`
}

// Explained is what would become of a packet.
type Explained struct {
	To        string              `json:"to"`        // interface, backend, client, kernel or dropped
	Decisions []datapath.Decision `json:"decisions"` // of the stages that it would meet; the last one takes it
	Sent      string              `json:"sent"`      // the frame that was tried, in hexadecimal
	Leaves    *Leaving            `json:"leaves"`    // null: it would not leave at XDP
}

// Leaving is a frame as it would leave.
type Leaving struct {
	Source      string     `json:"source_mac"`
	Destination string     `json:"destination_mac"`
	VLAN        uint16     `json:"vlan,omitempty"` // id of its tag; absent: none
	From        netip.Addr `json:"from,omitzero"`  // of the outermost IP header
	To          netip.Addr `json:"to,omitzero"`
	TTL         uint8      `json:"ttl"` // or hop limit
	Frame       string     `json:"frame"`
}

// Explain answers a question as a page of a stage.
func Explain(raw json.RawMessage, try func(iface string, frames []datapath.MadeUp) ([]datapath.Explanation, error)) (any, error) {
	var q Question
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("the question cannot be read: %w", err)
	}
	if q.Iface == "" || len(q.Packets) == 0 || len(q.Packets) > MostTried {
		return nil, fmt.Errorf("a question has an interface and 1 to %d packets; this one has interface %q and %d packets", MostTried, q.Iface, len(q.Packets))
	}
	var frames []datapath.MadeUp
	for _, p := range q.Packets {
		frames = append(frames, datapath.MadeUp{Data: p.Data, ToInterface: p.ToInterface})
	}
	all, err := try(q.Iface, frames)
	if err != nil {
		return nil, err
	}
	a := &Answer{Iface: q.Iface, Packets: []Explained{}}
	for i := range all {
		a.Packets = append(a.Packets, explained(&all[i]))
	}
	return a, nil
}

func explained(e *datapath.Explanation) Explained {
	x := Explained{To: datapath.ToKernel, Decisions: e.Decisions, Sent: hex.EncodeToString(e.Sent)}
	if n := len(e.Decisions); n > 0 {
		x.To = e.Decisions[n-1].To
	} else {
		x.Decisions = []datapath.Decision{}
	}
	if x.To != datapath.ToKernel && x.To != "dropped" && len(e.Frame) > etherLen {
		x.Leaves = leaving(e.Frame)
	}
	return x
}

const etherLen = 14

func leaving(frame []byte) *Leaving {
	l := &Leaving{Destination: net.HardwareAddr(frame[:6]).String(), Source: net.HardwareAddr(frame[6:12]).String(), Frame: hex.EncodeToString(frame)}
	kind, ip := binary.BigEndian.Uint16(frame[12:]), frame[etherLen:]
	if (kind == 0x8100 || kind == 0x88a8) && len(ip) >= 4 {
		l.VLAN, kind, ip = binary.BigEndian.Uint16(ip)&0xfff, binary.BigEndian.Uint16(ip[2:]), ip[4:]
	}
	switch {
	case kind == 0x0800 && len(ip) >= 20:
		l.TTL, l.From, l.To = ip[8], netip.AddrFrom4([4]byte(ip[12:16])), netip.AddrFrom4([4]byte(ip[16:20]))
	case kind == 0x86dd && len(ip) >= 40:
		l.TTL, l.From, l.To = ip[7], netip.AddrFrom16([16]byte(ip[8:24])), netip.AddrFrom16([16]byte(ip[24:40]))
	}
	return l
}

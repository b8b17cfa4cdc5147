package forward

import (
	"encoding/binary"
	"net/netip"

	"github.com/waymark-net/waymark/internal/datapath"
)

// Explain has programs try frames at an interface.
func (f *Forwarder) Explain(iface string, frames []datapath.MadeUp) ([]datapath.Explanation, error) {
	if f.core == nil {
		return nil, errNotLoaded
	}
	return f.core.Explain(iface, frames)
}

// explain reads what was noted of a frame.
func (f *Forwarder) explain(h datapath.Hook, dry *datapath.Dry) *datapath.Decision {
	var note abiDryNote
	if _, err := binary.Decode(dry.Note, binary.NativeEndian, &note); err != nil {
		return nil // unreachable: the note is as long
	}
	p := f.ports[h.Target.Iface]
	result := int(note.Forward&^uint8(abiDryFlagDRY_REFRESH)) - 1
	switch {
	case p == nil:
		return nil
	case result < 0 && note.Balance > 0 && p.off == "":
		return nil // a backend has it, or nobody
	case result < 0 || result >= results:
		return &datapath.Decision{Result: "off", To: datapath.ToKernel, Doc: p.off}
	}
	d := &datapath.Decision{Result: Results[result].Name, To: datapath.ToKernel, Doc: Results[result].Doc}
	routed := func() { // the kernel has said where the route leads
		d.OutIndex = note.Out
		d.NextHop = netip.AddrFrom16(note.NextHop).Unmap()
	}
	switch abiForwardResult(result) {
	case abiForwardResultFORWARD_DONE:
		routed()
		d.To, d.MTU, d.Refresh = "interface", note.Mtu, note.Forward&uint8(abiDryFlagDRY_REFRESH) != 0
	case abiForwardResultFORWARD_TOO_BIG:
		d.MTU = note.Mtu
	case abiForwardResultFORWARD_NO_NEIGHBOUR, abiForwardResultFORWARD_SAME_INTERFACE, abiForwardResultFORWARD_NO_PORT, abiForwardResultFORWARD_NO_STATION,
		abiForwardResultFORWARD_PARTS:
		routed()
	}
	return d
}

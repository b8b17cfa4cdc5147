package capture

import "github.com/waymark-net/waymark/internal/flow"

// Header is the beginning of a frame, as a switch that samples packets sends it.
type Header struct {
	Data   []byte
	Length int  // of the whole frame
	IP     bool // it begins with an IP header, not with Ethernet
}

// Measure counts the frame in d, which is empty, but for interface, direction and time; false: it is in no flow, or its headers are
// not whole.
func (h Header) Measure(d *flow.Delta) bool {
	f := frame{data: h.Data, length: max(h.Length, len(h.Data))}
	if h.IP {
		f.link = linkNone
	}
	var p parsed
	if p.dissect(&f, 0) != counted {
		return false
	}
	d.Key = p.Key
	p.addTo(d, &f, burstOf(&f, &p), 0)
	return true
}

package offline

import "github.com/waymark-net/waymark/wire/ioam"

// IOAM is an IOAM option of a packet. Its slices are parts of the frame.
type IOAM struct {
	ioam.Option
	Body ioam.Body // what can be read, nil: nothing
	Err  error     // all that is wrong: ioam.Problems
}

// options reads the IOAM options of a packet.
func (p *Packet) options(pkt []byte) {
	found, err := ioam.Find(pkt)
	p.IOAMErr = err
	for _, o := range found {
		body, err := o.Decode()
		p.IOAM = append(p.IOAM, IOAM{o, body, err})
	}
}

// countIOAM counts a packet's options.
func (s *Totals) countIOAM(p *Packet) {
	if len(p.IOAM) == 0 {
		return
	}
	s.IOAM++
	for _, o := range p.IOAM {
		if o.Err != nil {
			s.IOAMMalformed++
			return
		}
	}
}

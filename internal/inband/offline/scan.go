package offline

import (
	"errors"
	"io"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

// Totals is what a capture holds. All but Frames and UnknownLink count packets
// that the filter lets through.
type Totals struct {
	Frames      uint64
	UnknownLink uint64 // frames of a link type that is not known
	Packets     uint64 // IPv6 headers, those in tunnels too
	Marked      uint64 // with a PDM option
	Version2    uint64 // with PDMv2, which is not supported
	Malformed   uint64 // with extension headers that cannot be walked

	IOAM          uint64 // with an IOAM option
	IOAMMalformed uint64 // of these, with one that has problems

	FlowsDropped   uint64 // that made room for later ones in a full table
	PacketsDropped uint64 // with PDM, of these
}

// Scan reads r to its end. keep filters packets; each is called for those with a PDM or
// an IOAM option and for those that have one or should, but cannot be read: their Err or
// IOAMErr says why. The totals are right even when an error ends the scan.
func Scan(r *capfile.Reader, t *Table, keep func(*Packet) bool, each func(*Packet, inband.Observation) error) (Totals, error) {
	sum, err := scan(r, t, keep, each)
	sum.FlowsDropped, sum.PacketsDropped = t.Dropped()
	return sum, err
}

func scan(r *capfile.Reader, t *Table, keep func(*Packet) bool, each func(*Packet, inband.Observation) error) (Totals, error) {
	var sum Totals
	for {
		f, err := r.Next()
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		sum.Frames++
		known := Decode(f, func(p Packet) {
			if err != nil || !keep(&p) {
				return
			}
			if sum.count(&p); p.plain() {
				return
			}
			var o inband.Observation
			if p.Err == nil {
				o = t.Add(&p)
			}
			err = each(&p, o)
		})
		if !known {
			sum.UnknownLink++
		}
		if err != nil {
			return sum, err
		}
	}
}

func (s *Totals) count(p *Packet) {
	s.Packets++
	s.countIOAM(p)
	switch {
	case p.Err == nil:
		s.Marked++
	case errors.Is(p.Err, pdm.ErrVersion2):
		s.Version2++
	case !p.Unmarked(), p.IOAMErr != nil:
		s.Malformed++
	}
}

package engine

import (
	"math"
	"math/bits"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// Find returns the rules that match a packet, in order, by the tables: what the programs
// do, in the same steps.
func (t *Table) Find(p *rules.Packet) ([]*rules.Rule, error) {
	if p.Family == 0 {
		return nil, nil
	}
	rows, err := t.rowsOf(p)
	if err != nil {
		return nil, err
	}
	summary := t.Header.Summary
	for _, row := range rows {
		summary &= t.Rows[row].Summary
	}
	var found []*rules.Rule
	add := func(first int, word uint64) {
		for ; word != 0; word &= word - 1 {
			found = append(found, t.Rules[first+bits.TrailingZeros64(word)])
		}
	}
	if !t.hasWords() {
		add(0, summary)
		return found, nil
	}
	for ; summary != 0; summary &= summary - 1 {
		first := bits.TrailingZeros64(summary) << t.words.shift
		for n := first; n < first+1<<t.words.shift; n++ {
			word := uint64(math.MaxUint64)
			for _, row := range rows {
				word &= t.wordOf(&t.Rows[row], n)
			}
			add(64*n, word)
		}
	}
	return found, nil
}

// wordOf is a word of a row, which has some of its group.
func (t *Table) wordOf(r *Row, n int) uint64 {
	at := r.First + uint32(n)
	return t.Line(at / uint32(abiGateSizeGATE_LINE_WORDS)).word()[at%uint32(abiGateSizeGATE_LINE_WORDS)]
}

// rowsOf are the rows of the dimensions that rules have conditions about.
func (t *Table) rowsOf(p *rules.Packet) (rows []uint16, err error) {
	h := &t.Header
	header := p.Src.IsValid()
	add := func(dimension uint32, row uint16) {
		if h.Used&dimension != 0 {
			rows = append(rows, row)
		}
	}
	add(uint32(abiGateUsedGATE_USES_HEAD), h.Head[headOf(p)])
	add(uint32(abiGateUsedGATE_USES_SUB), h.Sub[subOf(p)])
	dscp := uint32(abiGateDscpGATE_DSCP_NONE)
	if header {
		dscp = uint32(p.DSCP)
	}
	add(uint32(abiGateUsedGATE_USES_DSCP), h.Dscp[dscp])
	if h.Used&uint32(abiGateUsedGATE_USES_IFACE) != 0 {
		row, err := t.IfaceRow(p.Iface)
		if err != nil {
			return nil, err
		}
		add(uint32(abiGateUsedGATE_USES_IFACE), row)
	}
	src, dst := h.NoSrc, h.NoDst
	if i := p.Family / 6; header {
		src, dst = uint16(t.find(h.Src[i], keyOf(p.Src))), uint16(t.find(h.Dst[i], keyOf(p.Dst)))
	}
	add(uint32(abiGateUsedGATE_USES_SRC), src)
	add(uint32(abiGateUsedGATE_USES_DST), dst)
	for n, v := range [abiGateNumberGATE_NUMBERS]struct {
		value uint16
		known bool
	}{
		abiGateNumberGATE_SPORT:  {p.Sport, header && p.HasPorts},
		abiGateNumberGATE_DPORT:  {p.Dport, header && p.HasPorts},
		abiGateNumberGATE_LENGTH: {p.Length, header},
		abiGateNumberGATE_VLAN:   {p.VLAN, p.Tagged},
	} {
		if h.Used&(uint32(abiGateUsedGATE_USES_NUMBER)<<n) == 0 {
			continue
		}
		row := h.NoNumber[n]
		if v.known {
			row = t.Pages[h.Pages[n][v.value>>8]].Row[v.value&255]
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func headOf(p *rules.Packet) uint32 {
	state := abiGateStateGATE_STATE_IPV4 + abiGateState(p.Family/6)
	proto := uint32(abiGateHeadGATE_PROTO_NONE)
	if p.Src.IsValid() {
		state += abiGateStateGATE_STATE_IPV4WHOLE
		if p.Fragment {
			state += abiGateStateGATE_STATE_IPV4FRAGMENT - abiGateStateGATE_STATE_IPV4WHOLE
		}
		if p.HasProto {
			proto = uint32(p.Proto)
		}
	}
	return uint32(state)*uint32(abiGateHeadGATE_PROTOS) + proto
}

func subOf(p *rules.Packet) uint32 {
	switch {
	case !p.Src.IsValid():
	case p.HasTCPFlags:
		return uint32(p.TCPFlags)
	case p.HasICMPType:
		return uint32(abiGateSubGATE_SUB_TYPE) + uint32(p.ICMPType)
	}
	return uint32(abiGateSubGATE_SUB_NONE)
}

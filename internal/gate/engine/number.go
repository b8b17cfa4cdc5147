package engine

import (
	"fmt"
	"slices"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

// ranges are the conditions about numbers of 16 bits, by enum gate_number.
var ranges = [abiGateNumberGATE_NUMBERS]func(*rules.Match) *rules.Ranges{
	abiGateNumberGATE_SPORT:  func(m *rules.Match) *rules.Ranges { return &m.Sport },
	abiGateNumberGATE_DPORT:  func(m *rules.Match) *rules.Ranges { return &m.Dport },
	abiGateNumberGATE_LENGTH: func(m *rules.Match) *rules.Ranges { return &m.Length },
	abiGateNumberGATE_VLAN:   func(m *rules.Match) *rules.Ranges { return &m.VLAN },
}

func (c *compiler) numbers() error {
	for n, of := range ranges {
		if err := c.number(n, of); err != nil {
			return err
		}
	}
	return nil
}

// step is where a range of a rule begins or ends.
type step struct {
	at    uint32
	rule  int
	delta int
}

// number fills the pages of a number.
func (c *compiler) number(n int, of func(*rules.Match) *rules.Ranges) (err error) {
	free := c.where(func(m *rules.Match) bool { return isFree(of(m)) })
	if !c.use(uint32(abiGateUsedGATE_USES_NUMBER)<<n, free) {
		return nil
	}
	if c.Header.NoNumber[n], err = c.row(free); err != nil {
		return err
	}
	steps := c.steps(of)
	current := c.where(func(m *rules.Match) bool { return isFree(of(m)) || of(m).Not })
	depth := make([]int, len(c.Rules))
	row, err := c.row(current)
	if err != nil {
		return err
	}
	var page Page
	for value := range uint32(1 << 16) {
		if len(steps) > 0 && steps[0].at == value {
			for len(steps) > 0 && steps[0].at == value {
				r := steps[0].rule
				depth[r] += steps[0].delta
				current.put(r, (depth[r] > 0) != of(&c.Rules[r].Match).Not)
				steps = steps[1:]
			}
			if row, err = c.row(current); err != nil {
				return err
			}
		}
		page.Row[value%256] = row
		if value%256 == 255 {
			if c.Header.Pages[n][value/256], err = c.page(page); err != nil {
				return err
			}
		}
	}
	return nil
}

// steps are the ends of all ranges, sorted.
func (c *compiler) steps(of func(*rules.Match) *rules.Ranges) (steps []step) {
	for i, r := range c.Rules {
		cond := of(&r.Match)
		list := slices.Clone(cond.List)
		for _, name := range cond.Sets {
			list = append(list, c.sets[name].Ports...)
		}
		for _, one := range list {
			steps = append(steps, step{uint32(one.First), i, 1}, step{uint32(one.Last) + 1, i, -1})
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return int(a.at) - int(b.at) })
	return steps
}

// page is the number of a page.
func (t *Table) page(p Page) (uint16, error) {
	if n, ok := t.pages[p]; ok {
		return n, nil
	}
	n := uint32(len(t.Pages))
	if n >= t.options.Limits.Pages {
		return 0, fmt.Errorf("the conditions about ports, lengths and VLANs need more than %d pages", n)
	}
	t.pages[p] = uint16(n)
	t.Pages = append(t.Pages, p)
	return uint16(n), nil
}

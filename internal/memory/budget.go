package memory

import (
	"fmt"
	"math/bits"
	"strings"
)

// Share is what one component takes of the memory.
type Share struct {
	Name string // of the component
	Key  string // of the configuration that bounds it; empty: none does

	Unit   uint64 // bytes of one element
	Least  uint64 // elements that it cannot do without
	Want   uint64 // elements that it takes where memory allows
	Weight uint64 // of the memory that is left, compared with other components
	Power  bool   // the number of elements is a power of two
	Heap   bool   // in the heap of Go, whose garbage takes part of Unit

	Count uint64 // elements that it gets
}

// Bytes is what the component takes at most.
func (s *Share) Bytes() uint64 { return s.Count * s.Unit }

// Budget is the memory with its shares.
type Budget struct {
	Limit  uint64 // bytes; 0: nothing bounds them
	Shares []Share
}

// Total is what all components take at most.
func (b *Budget) Total() uint64 {
	var sum uint64
	for i := range b.Shares {
		sum += b.Shares[i].Bytes()
	}
	return sum
}

// Heap is what components in the heap of Go take at most.
func (b *Budget) Heap() uint64 {
	var sum uint64
	for i := range b.Shares {
		if b.Shares[i].Heap {
			sum += b.Shares[i].Bytes()
		}
	}
	return sum
}

// Count is the number of elements of the component with a name.
func (b *Budget) Count(name string) uint64 {
	for i := range b.Shares {
		if b.Shares[i].Name == name {
			return b.Shares[i].Count
		}
	}
	panic("memory: no share " + name)
}

// TooSmallError is what a limit is that does not hold what each component cannot
// do without.
type TooSmallError struct {
	Limit, Need uint64
	Largest     []Share // that are bounded by a key, at their least
}

// Error names the limit that is needed, and what would lower it.
func (e *TooSmallError) Error() string {
	var parts []string
	for _, s := range e.Largest {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", s.Name, MiB(s.Least*s.Unit), s.Key))
	}
	text := fmt.Sprintf("the memory limit is %s, and at least %s are needed", MiB(e.Limit), MiB(e.Need))
	if len(parts) > 0 {
		text += ", of these: " + strings.Join(parts, ", ")
	}
	return text
}

// MiB is a size for people, rounded up.
func MiB(n uint64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }

// reserve is what is left to the kernel for page tables, sockets and caches: one
// part in so many.
const reserve = 20

// Plan divides a limit: components get what they want, or shares of what is left
// beyond their least, by weight. 0: there is no limit.
func Plan(limit uint64, shares []Share) (Budget, error) {
	b := Budget{Limit: limit, Shares: shares}
	for i := range shares {
		s := &shares[i]
		s.Least = min(s.Least, s.Want)
		s.Count = s.Want
	}
	spend := limit - limit/reserve
	if limit == 0 || b.Total() <= spend {
		return b, nil
	}
	if b.level(0); b.Total() > spend {
		return b, b.tooSmall()
	}
	// The largest level that fits, to a byte for each unit of weight.
	low, high := uint64(0), limit
	for low+1 < high {
		middle := low + (high-low)/2
		if b.level(middle); b.Total() <= spend {
			low = middle
		} else {
			high = middle
		}
	}
	b.level(low)
	return b, nil
}

// level gives each component so many bytes for each unit of its weight.
func (b *Budget) level(bytes uint64) {
	for i := range b.Shares {
		s := &b.Shares[i]
		s.Count = max(s.Least, min(s.Want, bytes*s.Weight/s.Unit))
		if s.Power {
			s.Count = max(s.Least, 1<<(bits.Len64(s.Count)-1))
		}
	}
}

func (b *Budget) tooSmall() error {
	e := &TooSmallError{Limit: b.Limit, Need: (b.Total()*reserve + reserve - 2) / (reserve - 1)}
	for _, s := range b.Shares {
		if s.Key != "" && s.Bytes() > b.Limit/reserve {
			e.Largest = append(e.Largest, s)
		}
	}
	return e
}

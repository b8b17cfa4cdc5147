package bench

import (
	"math/rand/v2"
	"runtime"
)

// lineWords is the number of words of a cache line, and of a slot.
const lineWords = 8

// measureRead is a yardstick: the time of reading one line after the other, in
// random order, where the place of the next is known only from the last. There
// are as many lines as flows, as far apart as slots are in a table with room
// for more. In ns, by round; no program that finds a flow in memory can be much faster,
// unless it works on several packets at once.
func measureRead(flows, rounds int) ([]float64, error) {
	random := rand.New(rand.NewPCG(1, 2))
	memory := make([]uint64, max(1<<16, slotsPerFlow*flows)*lineWords)
	lines := random.Perm(len(memory) / lineWords)[:flows]
	for i, line := range lines {
		memory[line*lineWords] = uint64(lines[(i+1)%flows] * lineWords)
	}
	const steps = 500_000
	var values []float64
	err := onProcessor(0, func() error {
		at := uint64(lines[0] * lineWords)
		for range rounds + 1 {
			before, err := threadTime()
			if err != nil {
				return err
			}
			for range steps {
				at = memory[at]
			}
			after, err := threadTime()
			if err != nil {
				return err
			}
			values = append(values, float64(after-before)/steps)
		}
		runtime.KeepAlive(at)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return values[1:], nil
}

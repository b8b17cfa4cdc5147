package memory

import (
	"runtime/debug"
	"slices"
	"sync"
)

// growth is how much the heap may grow between two collections of garbage, in percent.
var growth struct {
	sync.Mutex
	usual int   // where nobody asked for less
	asked []int // by those who did
}

// CollectSooner has the heap grow by no more than so many percent between two collections of garbage, until restore is
// called. Several may ask: the least counts. What is set to less, or never to be collected, stays so.
func CollectSooner(percent int) (restore func()) {
	growth.Lock()
	defer growth.Unlock()
	if len(growth.asked) == 0 {
		growth.usual = debug.SetGCPercent(percent)
	}
	growth.asked = append(growth.asked, percent)
	setGrowth()
	return func() {
		growth.Lock()
		defer growth.Unlock()
		i := slices.Index(growth.asked, percent)
		growth.asked = slices.Delete(growth.asked, i, i+1)
		setGrowth()
	}
}

func setGrowth() {
	debug.SetGCPercent(slices.Min(append([]int{growth.usual}, growth.asked...)))
}

package gate

import "math"

// sourcesOf estimates how many sources used so many cells of a row (linear counting).
func sourcesOf(used uint64) uint64 {
	const cells = float64(uint64(1) << abiGateDetectSizeGATE_SKETCH_SHIFT)
	free := max(cells-float64(used), 1)
	return uint64(math.Round(cells * math.Log(cells/free)))
}

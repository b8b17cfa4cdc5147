package disk

// memory is what vectors of one block after the other use.
type memory struct {
	int32s  [][]int32
	uint64s [][]uint64
	bytes   [][]byte
	digests [][]pairCell
	used    [4]int
	pages   pageMemory
}

// reuse has the memory of the block before be used again.
func (m *memory) reuse() { m.used = [4]int{} }

func (m *memory) codes(n int) []int32     { return taken(&m.int32s, &m.used[0], n) }
func (m *memory) numbers(n int) []uint64  { return taken(&m.uint64s, &m.used[1], n) }
func (m *memory) places(n int) []pairCell { return taken(&m.digests, &m.used[3], n) }
func (m *memory) marks(n int) []byte      { return taken(&m.bytes, &m.used[2], n) }

// taken is the next list of a kind; what it has is of no meaning.
func taken[T any](lists *[][]T, used *int, n int) []T {
	if *used == len(*lists) {
		*lists = append(*lists, nil)
	}
	list := &(*lists)[*used]
	*used++
	if cap(*list) < n {
		*list = make([]T, n, n+n/8)
	}
	return (*list)[:n]
}

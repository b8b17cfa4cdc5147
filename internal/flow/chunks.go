package flow

// chunkLen is how many elements are allocated at once.
const chunkLen = 1 << 10

// chunks is a list that grows without moving what it holds: a slice of a million
// flows would be copied a dozen times until it is that long.
type chunks[T any] struct {
	parts []*[chunkLen]T
	len   int32
}

// at is valid permanently.
func (c *chunks[T]) at(i int32) *T { return &c.parts[uint32(i)/chunkLen][uint32(i)%chunkLen] }

// add appends a copy of an element.
func (c *chunks[T]) add(v *T) (i int32) {
	i = c.len
	if int(i) == len(c.parts)*chunkLen {
		c.parts = append(c.parts, new([chunkLen]T))
	}
	c.len++
	*c.at(i) = *v
	return i
}

// reset empties the list and keeps its memory.
func (c *chunks[T]) reset() { c.len = 0 }

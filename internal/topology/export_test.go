package topology

// Enter is for a test of what happens without privilege.
func (n *Netns) Enter() error { return n.enter() }

// SetReceiveBuffer makes the subscriptions' buffers small enough to overflow.
func (w *Watcher) SetReceiveBuffer(size int) { w.rcvbuf = size }

// Numbers is the allocator of namespace numbers.
type Numbers = numbers

var (
	Take    = (*Numbers).take
	Release = (*Numbers).release
)

// SetDirectory is where the watcher looks for names instead of NetnsDir.
func (w *Watcher) SetDirectory(dir string) { w.dir = dir }

// UseUpNumbers leaves n namespace numbers to give out.
func (r *Registry) UseUpNumbers(n uint32) { r.numbers.next = MaxNetns - n }

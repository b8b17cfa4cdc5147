package tap

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Config says what is received. The numbers are those of metadata in the section hints of waymark status -o json.
type Config struct {
	Interface  string // of the caller's network namespace
	SocketMap  uint32 // socket_map: id of the map of sockets
	QueueMap   uint32 // queue_map: id of the map that says how much they take
	FirstQueue uint32 // first_queue
	Buffers    int    // of 4 KiB, of each queue; 0: 4096. The next power of two is taken
	Copy       bool   // the kernel copies frames, even where the driver could do without
}

// MaxBuffers are those of a queue, at most: 4 GiB.
const MaxBuffers = 1 << 20

// Frame is a received one. Its memory is used again when the function that was called with it returns.
type Frame struct {
	Queue    int
	Data     []byte
	Metadata      // as far as the driver has space for it
	Known    bool // there is metadata
}

// Tap receives. Its methods may be called from any goroutine; Receive by one.
type Tap struct {
	cfg     Config
	sockets *ebpf.Map
	mapped  []byte
	queues  []*receiver
	stop    int // eventfd
	lock    int // socket whose name only one has
	once    sync.Once
}

// receiver is a queue.
type receiver struct {
	*socket
	number int
	state  *queue    // shared with the program
	whole  []byte    // of a frame in several buffers
	began  [3]uint64 // sent, full and too long, when it began
}

// Open begins to receive. Until Close, selected packets wait for Receive.
func Open(cfg Config) (_ *Tap, err error) {
	t := &Tap{cfg: cfg, stop: -1, lock: -1}
	defer func() {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: run as root", err)
		}
		if err != nil {
			err = fmt.Errorf("tap %s: %w", cfg.Interface, errors.Join(err, t.Close()))
		}
	}()
	i, err := net.InterfaceByName(cfg.Interface)
	if err != nil {
		return nil, err
	}
	if t.sockets, err = ebpf.NewMapFromID(ebpf.MapID(cfg.SocketMap)); err != nil {
		return nil, fmt.Errorf("the map of sockets: %w", err)
	}
	if err := t.alone(); err != nil {
		return nil, err
	}
	if err := t.mapQueues(); err != nil {
		return nil, err
	}
	if t.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, err
	}
	size := uint32(4096)
	if cfg.Buffers < 0 || cfg.Buffers > MaxBuffers {
		return nil, fmt.Errorf("%d buffers: want at most %d", cfg.Buffers, MaxBuffers)
	}
	if cfg.Buffers > 0 {
		size = 1 << bits.Len32(uint32(cfg.Buffers-1))
	}
	for n := range uint32(64) { // HINTS_QUEUES of bpf/hints/abi.h
		s, err := openSocket(i.Index, n, size, cfg.Copy)
		if errors.Is(err, errNoQueue) {
			break
		}
		if err != nil {
			return nil, err
		}
		t.queues = append(t.queues, &receiver{socket: s, number: int(n), state: t.state(n)})
	}
	for _, r := range t.queues {
		if err := t.register(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// alone has no other tap change what the program knows of these queues. The kernel ends that with the process.
func (t *Tap) alone() (err error) {
	if t.lock, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	name := fmt.Sprintf("@waymark-tap-%d-%d", t.cfg.SocketMap, t.cfg.FirstQueue)
	if err = unix.Bind(t.lock, &unix.SockaddrUnix{Name: name}); errors.Is(err, unix.EADDRINUSE) {
		return errors.New("somebody else taps it")
	}
	return err
}

// mapQueues shares what sockets take with the program.
func (t *Tap) mapQueues() error {
	m, err := ebpf.NewMapFromID(ebpf.MapID(t.cfg.QueueMap))
	if err != nil {
		return fmt.Errorf("the map of queues: %w", err)
	}
	defer m.Close()
	if m.ValueSize() != uint32(queueSize) || m.MaxEntries() < t.cfg.FirstQueue+64 {
		return fmt.Errorf("map %d is not what this version knows: update the agent and this program together", t.cfg.QueueMap)
	}
	t.mapped, err = unix.Mmap(m.FD(), 0, int(m.MaxEntries())*queueSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("mapping the map of queues: %w", err)
	}
	return nil
}

func (t *Tap) state(n uint32) *queue {
	return (*queue)(unsafe.Pointer(&t.mapped[int(t.cfg.FirstQueue+n)*queueSize]))
}

// register has the program send frames to the socket, which nobody else may have registered.
func (t *Tap) register(r *receiver) error {
	limit, most := r.size, uint32(1)
	if r.zeroCopy {
		limit /= 2 // the rest is what the device fills
	}
	if r.parts {
		most = mostBuffers
	}
	element := t.cfg.FirstQueue + uint32(r.number)
	r.began = [3]uint64{atomic.LoadUint64(&r.state.sent), atomic.LoadUint64(&r.state.full), atomic.LoadUint64(&r.state.tooLong)}
	// What a receiver left that was killed: nothing is on its way any more.
	atomic.StoreUint64(&r.state.returned, atomic.LoadUint64(&r.state.sent))
	atomic.StoreUint32(&r.state.room, bufferRoom)
	atomic.StoreUint32(&r.state.most, most)
	atomic.StoreUint32(&r.state.limit, limit)
	if err := t.sockets.Update(element, uint32(r.fd), ebpf.UpdateNoExist); err != nil {
		atomic.StoreUint32(&r.state.limit, 0)
		r.state = nil
		if errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("somebody else receives from queue %d", r.number)
		}
		return fmt.Errorf("registering the socket of queue %d: %w", r.number, err)
	}
	return nil
}

// Receive calls a function with each frame, from one goroutine for each queue, until the context ends, the function fails or the
// interface is gone.
func (t *Tap) Receive(ctx context.Context, f func(*Frame) error) error {
	_, _ = unix.Read(t.stop, make([]byte, 8)) // of the call before
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, t.wake)()
	var all sync.WaitGroup
	errs := make([]error, len(t.queues))
	for i, r := range t.queues {
		all.Go(func() {
			defer cancel()
			errs[i] = r.run(ctx, t.stop, f)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// wake ends waiting.
func (t *Tap) wake() {
	_, _ = unix.Write(t.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
}

// patience, in ms: the kernel ends no wait for a socket whose interface is gone.
const patience = 500

// run receives from a queue.
func (r *receiver) run(ctx context.Context, stop int, f func(*Frame) error) error {
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
	for ctx.Err() == nil {
		n := r.received()
		if n == 0 {
			if _, err := unix.Poll(fds, patience); err != nil && err != unix.EINTR {
				return fmt.Errorf("waiting for frames of queue %d: %w", r.number, err)
			}
			if err := r.failed(); err != nil {
				return fmt.Errorf("queue %d: %w: the interface is gone", r.number, err)
			}
			continue
		}
		if err := r.handle(n, f); err != nil {
			return err
		}
	}
	return nil
}

// handle reads up to n buffers. The last ones may be of a frame that is not there as a whole yet.
func (r *receiver) handle(n uint32, f func(*Frame) error) error {
	first := *r.rx.consumer
	done, taken := uint32(0), uint64(0)
	var err error
	for from := uint32(0); from < n && err == nil; from = done {
		to := from
		for to < n && r.desc(first+to).Options&continued != 0 {
			to++
		}
		if to == n {
			break
		}
		frame := r.frame(first+from, to-from+1)
		taken += uint64((len(frame.Data) + bufferRoom - 1) / bufferRoom) // as the program counts
		err = f(&frame)
		done = to + 1
	}
	r.release(done)
	atomic.AddUint64(&r.state.returned, taken)
	return err
}

// frame is the one in so many buffers.
func (r *receiver) frame(first, buffers uint32) Frame {
	d := r.desc(first)
	out := Frame{Queue: r.number, Data: r.memory[d.Addr : d.Addr+uint64(d.Len)]}
	if at := d.Addr & (bufferSize - 1); at >= MetadataSize {
		meta := r.memory[d.Addr-MetadataSize : d.Addr]
		out.Metadata, out.Known = ParseMetadata(meta)
		clear(meta[MetadataSize-4:]) // so that no later frame seems to have it
	}
	if buffers == 1 {
		return out
	}
	r.whole = append(r.whole[:0], out.Data...)
	for i := uint32(1); i < buffers; i++ {
		d := r.desc(first + i)
		r.whole = append(r.whole, r.memory[d.Addr:d.Addr+uint64(d.Len)]...)
	}
	out.Data = r.whole
	return out
}

// Close ends receiving: the stack gets all packets again. It must not be called while Receive runs.
func (t *Tap) Close() (err error) {
	t.once.Do(func() {
		for _, r := range t.queues {
			if r.state != nil {
				if gone := t.sockets.Delete(t.cfg.FirstQueue + uint32(r.number)); !errors.Is(gone, ebpf.ErrKeyNotExist) {
					err = errors.Join(err, gone)
				}
				atomic.StoreUint32(&r.state.limit, 0)
			}
			r.close()
		}
		for _, fd := range []int{t.stop, t.lock} {
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
		if t.mapped != nil {
			_ = unix.Munmap(t.mapped)
		}
		if t.sockets != nil {
			_ = t.sockets.Close()
		}
	})
	return err
}

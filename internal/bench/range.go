package bench

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/packet"
)

// space is a network namespace without a name: it ends with this process,
// however that ends, and its interfaces with it.
type space struct {
	file   *os.File
	handle *netlink.Handle
}

func newSpace() (*space, error) {
	var s space
	err := locked(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w: run as root, or with CAP_SYS_ADMIN", err)
		}
		// Nothing but the traffic of the benchmark: no router solicitations.
		for _, scope := range []string{"all", "default"} {
			err := os.WriteFile("/proc/sys/net/ipv6/conf/"+scope+"/disable_ipv6", []byte("1"), 0)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("switching IPv6 off: %w", err)
			}
		}
		var err error
		s.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		return nil, err
	}
	if s.handle, err = netlink.NewHandleAt(netns.NsHandle(s.file.Fd()), unix.NETLINK_ROUTE); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("opening netlink in a network namespace: %w", err)
	}
	return &s, nil
}

// locked runs f on a thread that ends with it.
func locked(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// do runs f in the namespace, on one processor.
func (s *space) do(cpu int, f func() error) error {
	return onProcessor(cpu, func() error {
		if err := unix.Setns(int(s.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

func (s *space) close() {
	s.handle.Close()
	s.file.Close()
}

// Processors of a benchmark of probes: the kernel's work is done on the one
// that sends, probes in user space have the other.
const (
	probeProcessor  = 0
	senderProcessor = 1
)

// shootingRange is two namespaces with pairs of interfaces from one to the
// other. Frames leave by out0, out1, … and arrive at in0, in1, …
type shootingRange struct {
	from, to *space
	lanes    []*lane
	bare     bool // no XDP program receives: see newBareLane
}

// lane is one pair of interfaces.
type lane struct {
	r        *shootingRange
	name     string    // of the interface that receives
	receive  link.Link // nil on a bare lane
	programs *ebpf.Collection
	frame    []byte
}

func newRange(lanes, flows int) (*shootingRange, error) {
	return makeRange(&shootingRange{}, lanes, flows)
}

// newBareLane is one lane in namespaces of its own, whose receiving interface has no XDP program. GRO
// makes veth receive as network cards do, by NAPI, which frames that are redirected need.
func newBareLane(flows int) (*lane, error) {
	r, err := makeRange(&shootingRange{bare: true}, 1, flows)
	if err != nil {
		return nil, err
	}
	l := r.lanes[0]
	if err := r.to.do(probeProcessor, func() error { return lab.SetFeatures(l.name, true, "rx-gro") }); err != nil {
		r.close()
		return nil, err
	}
	return l, nil
}

func makeRange(r *shootingRange, lanes, flows int) (_ *shootingRange, err error) {
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.from, err = newSpace(); err != nil {
		return nil, err
	}
	if r.to, err = newSpace(); err != nil {
		return nil, err
	}
	lo, err := r.to.handle.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := r.to.handle.LinkSetUp(lo); err != nil {
		return nil, err
	}
	for i := range lanes {
		l, err := r.addLane(i, flows)
		if err != nil {
			return nil, err
		}
		r.lanes = append(r.lanes, l)
	}
	return r, nil
}

func (r *shootingRange) addLane(i, flows int) (*lane, error) {
	out, in := fmt.Sprintf("out%d", i), fmt.Sprintf("in%d", i)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = out
	err := r.from.handle.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: in, PeerNamespace: netlink.NsFd(r.to.file.Fd()),
	})
	if err != nil {
		return nil, fmt.Errorf("adding the interfaces %s and %s: %w", out, in, err)
	}
	sender, err := r.from.handle.LinkByName(out)
	if err != nil {
		return nil, err
	}
	receiver, err := r.to.handle.LinkByName(in)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.from.handle.LinkSetUp(sender), r.to.handle.LinkSetUp(receiver)); err != nil {
		return nil, fmt.Errorf("setting %s and %s up: %w", out, in, err)
	}

	spec, err := program.Generate()
	if err != nil {
		return nil, err
	}
	k := kinds()[0]
	if r.bare {
		k.frame = bareFrame(receiver.Attrs().HardwareAddr)
	}
	if err := k.adapt(flows)(spec); err != nil {
		return nil, err
	}
	if err := spec.Variables["cfg_ifindex"].Set(uint32(sender.Attrs().Index)); err != nil {
		return nil, err
	}
	l := &lane{r: r, name: in, frame: k.frame}
	if l.programs, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("loading the generator: %w", err)
	}
	if r.bare {
		return l, nil
	}
	err = r.to.do(probeProcessor, func() error {
		l.receive, err = link.AttachXDP(link.XDPOptions{
			Program: l.programs.Programs["receive"], Interface: receiver.Attrs().Index, Flags: link.XDPDriverMode,
		})
		return err
	})
	if err != nil {
		l.programs.Close()
		return nil, fmt.Errorf("attaching XDP to %s: %w", in, err)
	}
	return l, nil
}

// bareFrame gets as far as the stack: it is for the receiver, and its checksum is that of the first flow.
func bareFrame(to net.HardwareAddr) []byte {
	frame := packet.Eth().IPv4("10.0.0.0", "192.0.2.1").UDP(0, 53).Payload(payload).Bytes()
	copy(frame, to)
	return frame
}

// volley is what one sending came to.
type volley struct {
	sent     uint64
	received uint64
	ns       float64 // processor time of a packet sent: sending it and all that the receiver does
}

// shoot sends n frames, at least. The kernel receives them on the same thread,
// between two batches.
func (l *lane) shoot(n int) (volley, error) {
	var v volley
	before, err := l.counters()
	if err != nil {
		return v, err
	}
	sentBefore, err := l.sent()
	if err != nil {
		return v, err
	}
	err = l.r.from.do(senderProcessor, func() error {
		took, err := sendLive(l.programs.Programs["generate"], l.frame, n)
		v.ns = float64(took)
		return err
	})
	if err != nil {
		return v, err
	}
	after, err := l.counters()
	if err != nil {
		return v, err
	}
	sentAfter, err := l.sent()
	if err != nil {
		return v, err
	}
	v.sent, v.received = sentAfter-sentBefore, after-before
	v.ns /= float64(v.sent)
	return v, nil
}

// sent is how many frames the generator made.
func (l *lane) sent() (uint64, error) {
	var senders program.Senders
	if err := l.programs.Variables["senders"].Get(&senders); err != nil {
		return 0, fmt.Errorf("reading what was sent: %w", err)
	}
	var n uint64
	for _, s := range senders.Cpu {
		n += s.Packets
	}
	return n, nil
}

// counters are the packets that the receiving interface has counted.
func (l *lane) counters() (uint64, error) {
	in, err := l.r.to.handle.LinkByName(l.name)
	if err != nil {
		return 0, fmt.Errorf("reading the counters of %s: %w", l.name, err)
	}
	return in.Attrs().Statistics.RxPackets, nil
}

func (r *shootingRange) close() {
	for _, l := range r.lanes {
		if l.receive != nil {
			l.receive.Close() // it goes with its interface in any case
		}
		l.programs.Close()
	}
	for _, s := range []*space{r.from, r.to} {
		if s != nil {
			s.close()
		}
	}
}

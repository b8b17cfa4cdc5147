package ioam

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/wire/ioam"
)

// Queues are read every queueInterval, and a reading is used for queueLifetime: traces say "not available" if the
// agent does not come round to it.
const (
	queueInterval = 100 * time.Millisecond
	queueLifetime = 250 * time.Millisecond
)

// measured are the maps of what is measured of interfaces.
var measured = []string{"ioam_queues", "ioam_nics"}

// queues reads the queues of interfaces, in their namespaces.
type queues struct {
	mu      sync.Mutex
	sockets map[uint32]*nl.SocketHandle // by namespace, where they were opened
}

// join opens the socket of the namespace of an interface.
func (q *queues) join(t *datapath.Target) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	netns := t.Iface.Netns()
	if q.sockets[netns] != nil {
		return nil
	}
	return t.Do(func() error {
		s, err := nl.Subscribe(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("opening a socket to read queues: %w", err)
		}
		if err := s.SetReceiveTimeout(&unix.Timeval{Sec: 1}); err != nil {
			return err
		}
		if q.sockets == nil {
			q.sockets = map[uint32]*nl.SocketHandle{}
		}
		q.sockets[netns] = &nl.SocketHandle{Socket: s}
		return nil
	})
}

func (q *queues) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.sockets {
		s.Socket.Close()
	}
	q.sockets = nil
}

// leave closes the socket of a namespace that has no interface left.
func (q *queues) leave(netns uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.sockets[netns]; s != nil {
		s.Socket.Close()
		delete(q.sockets, netns)
	}
}

// read lists the queues of all interfaces of a namespace, by index: a question for a single one, the kernel would
// answer to all listeners.
func (q *queues) read(netns uint32) (map[int]abiIoamQueue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.sockets[netns]
	if s == nil {
		return nil, errNotLoaded
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: s}
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC})
	messages, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWQDISC)
	if err != nil {
		return nil, fmt.Errorf("reading the queues of interfaces: %w", err)
	}
	return queuesOf(messages)
}

// queuesOf reads queueing disciplines. That at the root of an interface counts what waits in all below it.
func queuesOf(messages [][]byte) (map[int]abiIoamQueue, error) {
	out := map[int]abiIoamQueue{}
	for _, m := range messages {
		if len(m) < nl.SizeofTcMsg {
			return nil, errNoQueue
		}
		head := nl.DeserializeTcMsg(m)
		depth, memory, err := queueOf(m[nl.SizeofTcMsg:])
		if err != nil {
			return nil, fmt.Errorf("queue of interface %d: %w", head.Ifindex, err)
		}
		value, known := out[int(head.Ifindex)]
		if !known {
			value.Occupancy = ioam.Unavailable32
		}
		if head.Parent == netlink.HANDLE_ROOT {
			value.Depth = depth
		}
		switch {
		case memory == ioam.Unavailable32:
		case value.Occupancy == ioam.Unavailable32:
			value.Occupancy = memory
		default:
			value.Occupancy += memory
		}
		out[int(head.Ifindex)] = value
	}
	return out, nil
}

var errNoQueue = errors.New("a queueing discipline without statistics")

// queueOf reads backlog and memory of a queueing discipline, in bytes; Unavailable32 where it does not count memory.
func queueOf(attributes []byte) (depth, occupancy uint32, err error) {
	all, err := nl.ParseRouteAttrAsMap(attributes)
	if err != nil {
		return 0, 0, err
	}
	stats, err := nl.ParseRouteAttrAsMap(all[nl.TCA_STATS2].Value)
	if err != nil {
		return 0, 0, err
	}
	queue := stats[nl.TCA_STATS_QUEUE].Value // struct gnet_stats_queue
	if len(queue) < 8 {
		return 0, 0, errNoQueue
	}
	kind := string(all[nl.TCA_KIND].Value)
	return binary.NativeEndian.Uint32(queue[4:]), memoryOf(kind, stats[nl.TCA_STATS_APP].Value), nil
}

// memoryOf is the memory of the packets in a queueing discipline whose queues share a limit of it.
func memoryOf(kind string, stats []byte) uint32 {
	const (
		fqCodelUsage = 4 + 7*4 // in struct tc_fq_codel_xstats, behind the type
		cakeUsed     = 4       // TCA_CAKE_STATS_MEMORY_USED
	)
	switch kind {
	case "fq_codel\x00":
		if len(stats) >= fqCodelUsage+4 {
			return binary.NativeEndian.Uint32(stats[fqCodelUsage:])
		}
	case "cake\x00":
		nested, err := nl.ParseRouteAttrAsMap(stats)
		if used := nested[cakeUsed].Value; err == nil && len(used) >= 4 {
			return binary.NativeEndian.Uint32(used)
		}
	}
	return ioam.Unavailable32
}

// followQueues keeps the programs informed of the queues where traces leave.
func (r *Registrar) followQueues() { r.follow(queueInterval, r.measureQueues) }

// measureQueues reads all queues once. The lock is not held while the kernel answers.
func (r *Registrar) measureQueues() error {
	indexes := map[flow.Iface]int{}
	if err := r.do(func() error {
		for i, name := range r.ifaces {
			if index := r.indexes[i]; index > 0 && r.node.leavesBy(name) {
				indexes[i] = index
			}
		}
		return nil
	}); err != nil {
		return err
	}
	var errs []error
	values, read := map[flow.Iface]abiIoamQueue{}, map[uint32]map[int]abiIoamQueue{}
	for i, index := range indexes {
		netns := i.Netns()
		if read[netns] == nil {
			list, err := r.queues.read(netns)
			if err != nil {
				errs = append(errs, err)
				list = map[int]abiIoamQueue{}
			}
			read[netns] = list
		}
		if value, ok := read[netns][index]; ok {
			value.Until = uint64(clock(unix.CLOCK_MONOTONIC) + int64(queueLifetime))
			values[i] = value
		}
	}
	return r.do(func() error {
		for i, value := range values {
			if r.indexes[i] == 0 { // gone since
				continue
			}
			errs = append(errs, r.maps["ioam_queues"].Put(uint32(i), value))
		}
		return errors.Join(errs...)
	})
}

// leavesBy reports whether traces leave by an interface.
func (n *Node) leavesBy(name string) bool {
	i := n.interfaceNamed(name)
	if i == nil {
		return false
	}
	role := i.Role
	for _, exception := range i.Exceptions {
		role |= exception
	}
	return role&RoleEgress != 0
}

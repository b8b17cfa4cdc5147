package ioam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	wire "github.com/waymark-net/waymark/wire/ioam"
)

// DirectExport limits what the node exports of packets with direct export options (RFC 9326).
type DirectExport struct {
	Every uint32 // one packet in so many; 0: none
	Rate  uint32 // records per second and CPU
}

const (
	// directRing is the size of the ring of exported records: about 500.
	directRing = 1 << 18
	// directPatience is how long a record waits for the egress of its packet, which passes it within milliseconds, or
	// never: the host itself receives the packet.
	directPatience = time.Second
)

// directMaps are the maps of direct export.
var directMaps = []string{"ioam_direct_records", "ioam_direct_waiting"}

// Exported is what the node exported of one packet.
type Exported struct {
	Time        time.Time // of receipt
	Iface       flow.Iface
	Source      netip.AddrPort
	Destination netip.AddrPort
	Proto       uint8
	Packets     uint32 // on the wire: a GSO burst counts as its segments
	Option      wire.DEX
	Hop         wire.Hop // the node's data
}

// direct takes the records of direct export, and the copies of loopback, which share their ring.
type direct struct {
	maps   map[string]*ebpf.Map
	ring   *datapath.Ringbuf
	looper looper

	mu     sync.Mutex
	unread uint64          // records
	stayed uint64          // packets that did not leave, with a record
	listen func(*Exported) // called with the lock held; nil: nobody listens
}

// sizes are those of the maps.
func (d *direct) sizes() map[string]uint32 {
	return map[string]uint32{"ioam_direct_records": directRing, "ioam_direct_waiting": uint32(abiIoamDirectSizeIOAM_DIRECT_WAITING)}
}

func (d *direct) open(c *datapath.Core) (err error) {
	if d.maps, err = c.Maps(directMaps...); err != nil {
		return err
	}
	d.ring, err = datapath.OpenRingbuf(d.maps["ioam_direct_records"], 1)
	return err
}

// follow reads records as they come.
func (d *direct) follow(ctx context.Context) {
	for {
		if more, err := d.ring.Wait(ctx); err != nil || !more {
			return
		}
		if err := d.ring.Read(d.take); err != nil {
			return // an element of another size: unreachable
		}
	}
}

// take takes an element of the ring, which shows by its size what it is.
func (d *direct) take(raw []byte) error {
	switch len(raw) {
	case int(unsafe.Sizeof(abiIoamDirectRecord{})):
		return d.give((*abiIoamDirectRecord)(unsafe.Pointer(&raw[0])))
	case int(unsafe.Sizeof(abiIoamCopy{})):
		d.looper.take(raw)
		return nil
	}
	return fmt.Errorf("element of %d bytes", len(raw))
}

// give passes a record on.
func (d *direct) give(r *abiIoamDirectRecord) error {
	at, err := datapath.Now()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listen == nil {
		d.unread++
		return nil
	}
	d.listen(exportedOf(r, at))
	return nil
}

// exportedOf decodes a record.
func exportedOf(r *abiIoamDirectRecord, at datapath.Moment) *Exported {
	e := &Exported{
		Time: time.Unix(0, int64(r.Received)+at.Wall-at.Mono).UTC(), Iface: flow.Iface(r.Iface), Proto: r.Proto, Packets: r.Packets,
		Source:      netip.AddrPortFrom(netip.AddrFrom16(r.Source), datapath.HostPort(r.Sport)),
		Destination: netip.AddrPortFrom(netip.AddrFrom16(r.Destination), datapath.HostPort(r.Dport)),
		Option: wire.DEX{
			Namespace: r.Space, Flags: r.Flags, Extension: wire.DEXFlags(r.Extension), Type: wire.TraceType(r.Fields >> 8),
			FlowID: r.Flow, Sequence: r.Sequence,
		},
	}
	// The data are those of a trace with this hop alone.
	t := wire.Trace{Namespace: r.Space, Type: e.Option.Type, NodeLen: uint8(e.Option.Type.NodeLen())}
	t.Data = append(t.Data, r.Data[:min(int(r.Bytes), len(r.Data))]...)
	t.Data = append(t.Data, r.Schema[:min(int(r.SchemaBytes), len(r.Schema))]...)
	if hops, err := t.Hops(); err == nil && len(hops) == 1 {
		e.Hop = hops[0]
	}
	return e
}

// sweep takes the records whose packets have not left the node.
func (d *direct) sweep() error {
	at, err := datapath.Now()
	if err != nil {
		return err
	}
	var key abiIoamDirectKey
	var value abiIoamDirectRecord
	var stayed []abiIoamDirectKey
	waiting := d.maps["ioam_direct_waiting"]
	all := waiting.Iterate()
	for all.Next(&key, &value) {
		if at.Mono-int64(key.Received) >= int64(directPatience) {
			stayed = append(stayed, key)
		}
	}
	if err := all.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // the rest comes the next time
		return fmt.Errorf("reading records of direct export: %w", err)
	}
	for _, key := range stayed {
		switch err := waiting.LookupAndDelete(key, &value); {
		case errors.Is(err, ebpf.ErrKeyNotExist): // the egress was first
			continue
		case err != nil:
			return fmt.Errorf("taking records of direct export: %w", err)
		}
		d.mu.Lock()
		d.stayed += uint64(value.Packets)
		d.mu.Unlock()
		if err := d.give(&value); err != nil {
			return err
		}
	}
	return nil
}

// run takes records until stop is closed.
func (d *direct) run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go d.follow(ctx)
	tick := time.NewTicker(directPatience)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			_ = d.sweep() // fails when the datapath is closed
		}
	}
}

func (d *direct) close() {
	if d.ring != nil {
		d.ring.Close()
	}
	d.looper.close()
}

// counts are packets whose record left the kernel otherwise than through the ring, and records that nobody read.
func (d *direct) counts() (stayed, unread uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stayed, d.unread
}

// StreamExported reports what the node exports until ctx ends. There is one such stream at a time.
func (r *Registrar) StreamExported(ctx context.Context, listen func(*Exported)) error {
	set := func(listen func(*Exported)) {
		r.direct.mu.Lock()
		defer r.direct.mu.Unlock()
		r.direct.listen = listen
	}
	set(listen)
	<-ctx.Done()
	set(nil)
	return nil
}

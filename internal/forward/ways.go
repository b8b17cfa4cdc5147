package forward

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/forward/l2"
)

// reread is how old may be what the kernel said of links, if it tells of changes.
const reread = 10 * time.Second

// upper is what is known of VLAN interfaces and bridges of a network namespace.
type upper struct {
	table   l2.Table
	names   map[uint32]string // of interfaces that route
	strict  map[uint32]bool   // those where the route to a source has to lead back (rp_filter)
	ways    map[abiForwardKey]abiForwardWay
	read    time.Time
	bridges bool // there are some
}

// readUpper asks the kernel. ports are interfaces of one namespace, in which the caller is.
func (f *Forwarder) readUpper(w *watch, ports []*port) (*upper, error) {
	indexes := map[uint32]bool{}
	for _, p := range ports {
		indexes[p.index] = true
	}
	u := &upper{names: map[uint32]string{}, strict: map[uint32]bool{}, read: time.Now()}
	state, err := f.cfg.read(indexes)
	if err != nil {
		return nil, err
	}
	if u.bridges = state.HasBridges(indexes); u.bridges {
		why, err := bridgeBypassed(f.cfg.BypassNetfilter)
		if err != nil {
			return nil, err
		}
		if why != w.bridgesOff || w.upper == nil {
			f.reportBridges(why)
		}
		w.bridgesOff = why
		if why != "" {
			state.LeaveBridges()
		}
	}
	u.table = l2.Resolve(state, indexes)
	for _, up := range u.table.Arrivals {
		for _, index := range []uint32{up.Device, up.Scope} {
			if _, known := u.strict[index]; known {
				continue
			}
			u.names[index] = state.Links[index].Name
			u.strict[index], err = isStrict(u.names[index])
			if errors.Is(err, fs.ErrNotExist) { // it is gone
				u.strict[index], err = true, nil
			}
			if err != nil {
				return nil, err
			}
		}
	}
	u.ways = u.waysOf(ports)
	return u, nil
}

// reportBridges has the log say why frames of bridges are left to the kernel.
func (f *Forwarder) reportBridges(why string) {
	if why == "" {
		f.log.Info("forward: packets that are routed from and to bridges are forwarded at XDP")
		return
	}
	f.log.Warn("forward: packets that are routed from and to bridges are left to the kernel", "reason", why)
}

// followUpper has programs follow VLAN interfaces and bridges, of the namespaces that ports are in.
func (f *Forwarder) followUpper() error {
	byNetns := map[uint32][]*port{}
	for _, p := range f.sorted() {
		if p.attached && p.index != 0 {
			byNetns[p.hook.Target.Netns] = append(byNetns[p.hook.Target.Netns], p)
		}
	}
	want := map[abiForwardKey]abiForwardWay{}
	changed := len(byNetns) != f.netns
	f.netns = len(byNetns)
	for netns, ports := range byNetns {
		w := f.watched[netns]
		if w.dirty.Swap(false) || w.upper == nil || time.Since(w.upper.read) > reread {
			if err := ports[0].hook.Target.Do(func() error {
				u, err := f.readUpper(w, ports)
				if err == nil {
					w.upper, changed = u, true
				}
				return err
			}); err != nil {
				w.dirty.Store(true)
				f.netns = -1 // what was read is to be published, too
				return fmt.Errorf("interfaces above %s: %w", ports[0].hook.Target.String(), err)
			}
		}
		for _, p := range ports {
			f.publishUpper(p, w.upper)
		}
	}
	if !changed {
		return nil
	}
	for netns := range byNetns {
		maps.Copy(want, f.watched[netns].upper.ways)
	}
	if err := f.publishWays(want); err != nil {
		f.netns = -1
		return err
	}
	return nil
}

// base is what is added to indexes of a namespace, as programs of a port do.
func (p *port) base() uint32 {
	return uint32(p.hook.Target.Iface) - p.hook.Target.IfIndex
}

// arrival is how programs see what routes frames of a port.
func (u *upper) arrival(base uint32, up l2.Upper) abiForwardWay {
	way := abiForwardWay{Device: up.Device, Scope: up.Scope, Member: up.Member, Mac: up.MAC, Vid: up.VID}
	if up.Bridge != 0 {
		way.Bridge = base + up.Bridge
	}
	if u.strict[up.Device] || u.strict[up.Scope] {
		way.Flags = uint32(abiForwardFlagFORWARD_STRICT)
	}
	return way
}

// waysOf are all that programs look up.
func (u *upper) waysOf(ports []*port) map[abiForwardKey]abiForwardWay {
	out := map[abiForwardKey]abiForwardWay{}
	numbers := map[uint32]uint32{} // of ports, by index
	bases := map[uint32]bool{}
	for _, p := range ports {
		numbers[p.index] = uint32(p.hook.Target.Iface)
		bases[p.base()] = true
	}
	lower := func(base uint32, l l2.Lower) abiForwardWay {
		way := abiForwardWay{Port: numbers[l.Port], Room: l.MTU, Vid: l.VID, Tag: tagOf(l.Tag)}
		if l.Bridge != 0 {
			way.Bridge = base + l.Bridge
		}
		return way
	}
	for _, p := range ports {
		for at, up := range u.table.Arrivals {
			if at.Port == p.index && at.Tag != (l2.Tag{}) {
				key := abiForwardKey{Iface: uint32(p.hook.Target.Iface), Tag: tagOf(at.Tag), Kind: uint16(abiForwardKindFORWARD_ARRIVAL)}
				out[key] = u.arrival(p.base(), up)
			}
		}
	}
	for base := range bases {
		for index, l := range u.table.Routes {
			out[abiForwardKey{Iface: base + index, Kind: uint16(abiForwardKindFORWARD_ROUTE)}] = lower(base, l)
		}
		for at, behind := range u.table.Stations {
			way := lower(base, behind.Lower)
			way.Member = behind.Member
			out[abiForwardKey{Iface: base + at.Bridge, Tag: abiForwardTag{Vid: at.VID}, Mac: at.MAC, Kind: uint16(abiForwardKindFORWARD_STATION)}] = way
		}
	}
	return out
}

// tagOf is a tag as programs have it: the protocol as in the frame.
func tagOf(t l2.Tag) abiForwardTag {
	if t.VID == 0 {
		return abiForwardTag{}
	}
	return abiForwardTag{Proto: bits.ReverseBytes16(t.Proto), Vid: t.VID} // objects are little-endian
}

// publishUpper shows programs what frames of a port without a tag are for.
func (f *Forwarder) publishUpper(p *port, u *upper) {
	own, known := u.table.Arrivals[l2.Arrival{Port: p.index}]
	p.port.Flags &^= uint32(abiForwardFlagFORWARD_UPPER | abiForwardFlagFORWARD_ADDRESSES)
	p.routes = u.names[own.Device]
	way := abiForwardWay{}
	if !known || own.Scope != p.index {
		p.port.Flags |= uint32(abiForwardFlagFORWARD_UPPER)
		if known {
			way = u.arrival(p.base(), own)
			p.port.Mac = own.MAC
		}
	}
	for at, up := range u.table.Arrivals {
		if at.Port == p.index && up.MAC != p.port.Mac {
			p.port.Flags |= uint32(abiForwardFlagFORWARD_ADDRESSES)
		}
	}
	f.memory.Values[0].Untagged[p.place] = way
}

// publishWays has the map of programs have these. What is new comes first, so that nothing is missing meanwhile.
func (f *Forwarder) publishWays(want map[abiForwardKey]abiForwardWay) error {
	m := f.maps["forward_ways"]
	full := false
	for key, way := range want {
		if now, known := f.ways[key]; known && now == way {
			continue
		}
		err := m.Put(key, way)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist), err != nil && len(f.ways) >= int(m.MaxEntries()):
			full = true
		case err != nil:
			return fmt.Errorf("forwarding by VLAN interfaces and bridges: %w", err)
		default:
			f.ways[key] = way
		}
	}
	for key := range f.ways {
		if _, known := want[key]; known {
			continue
		}
		if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forwarding by VLAN interfaces and bridges: %w", err)
		}
		delete(f.ways, key)
	}
	if full && !f.full {
		f.log.Warn("forward: there are more stations of bridges and VLAN interfaces than places; packets to the others go to the kernel", "places", m.MaxEntries())
	}
	f.full = full
	return nil
}

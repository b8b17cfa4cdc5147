package balance

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/order"
)

// Forwarding is how packets get to a backend.
type Forwarding uint8

// The ways.
const (
	L2   = Forwarding(abiBalanceForwardingBALANCE_L2)
	IPIP = Forwarding(abiBalanceForwardingBALANCE_IPIP)
	GUE  = Forwarding(abiBalanceForwardingBALANCE_GUE)
)

// None is what happens when no backend takes a connection.
type None uint8

// The choices.
const (
	NoneDrop  = None(abiBalanceNoneBALANCE_NONE_DROP)
	NoneReset = None(abiBalanceNoneBALANCE_NONE_RESET)
	NonePass  = None(abiBalanceNoneBALANCE_NONE_PASS)
)

// Address identifies a service.
type Address struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

func (a Address) key() abiBalanceKey {
	return abiBalanceKey{Addr: a.Addr.As16(), Port: bigEndian(a.Port), Proto: a.Proto}
}

func bigEndian(port uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))
}

// QUIC says which connection IDs name backends.
type QUIC struct {
	Config uint8 // their first three bits
	Length uint8 // bytes of a backend's id
}

// Service is a virtual address and who serves it.
type Service struct {
	Name string
	Address
	Forwarding Forwarding
	None       None
	QUIC       *QUIC // nil: connections are known by addresses and ports only
	Seed       uint64
	Backends   []Backend
}

// Backend is one that serves.
type Backend struct {
	Addr   netip.Addr
	Weight uint32
	Drain  bool   // it gets no new connections
	ID     []byte // in QUIC connection IDs
}

type service struct {
	Service
	number   uint32
	base     []uint16 // its table with all backends
	ring     []uint16 // with those that take new connections
	backends map[netip.Addr]*backend
}

type backend struct {
	Backend
	service *service
	number  uint16
	up      bool
	source  netip.Addr
	out     uint32        // the interface where the route to it leads
	listed  *abiBalanceId // its key in balance_ids; nil: it has none
	reason  string        // why nothing gets there
}

// takes reports whether new connections go there.
func (be *backend) takes() bool { return be.up && !be.Drain }

// Apply has the balancer serve these services, and no others. Connections stay where they are, except those of backends that
// are gone. A backend that is new is taken to be healthy or not as known says.
func (b *Balancer) Apply(services []Service, known func(Address, netip.Addr) bool) error {
	return b.do(func() error {
		wanted := map[Address]bool{}
		var gone []*backend
		for _, s := range services {
			wanted[s.Address] = true
			left, err := b.serve(s, known)
			if err != nil {
				return fmt.Errorf("balance: service %s: %w", s.Name, err)
			}
			gone = append(gone, left...)
		}
		for address, s := range b.services {
			if wanted[address] {
				continue
			}
			left, err := b.end(s)
			if err != nil {
				return fmt.Errorf("balance: service %s: %w", s.Name, err)
			}
			gone = append(gone, left...)
		}
		return errors.Join(b.release(gone), b.hop())
	})
}

// serve begins with a service, or follows its new description. It returns the backends that are gone.
func (b *Balancer) serve(want Service, known func(Address, netip.Addr) bool) (gone []*backend, err error) {
	s := b.services[want.Address]
	if s == nil {
		s = &service{backends: map[netip.Addr]*backend{}}
		if s.number, err = b.freeService(); err != nil {
			return nil, err
		}
		if err := b.maps["balance_counts"].Put(ports+s.number, make([]abiBalanceCount, ebpf.MustPossibleCPU())); err != nil {
			return nil, err
		}
	}
	s.Service = want
	// First: what one backend had may be another's now.
	for _, one := range want.Backends {
		if be := s.backends[one.Addr]; be != nil {
			if err := b.unlist(be, s.id(one)); err != nil {
				return nil, err
			}
		}
	}
	stays := map[netip.Addr]bool{}
	for _, one := range want.Backends {
		stays[one.Addr] = true
		be := s.backends[one.Addr]
		if be == nil {
			be = &backend{service: s, up: known(want.Address, one.Addr)}
			if be.number, err = b.freeBackend(); err != nil {
				return nil, err
			}
			if err := b.maps["balance_loads"].Put(uint32(be.number), make([]abiBalanceLoad, ebpf.MustPossibleCPU())); err != nil {
				return nil, err
			}
			b.backends[be.number], s.backends[one.Addr] = be, be
		}
		be.Backend = one
		if err := b.writeBackend(be); err != nil {
			return nil, err
		}
	}
	for addr, be := range s.backends {
		if !stays[addr] {
			gone = append(gone, be)
			delete(s.backends, addr)
		}
	}
	s.base = Ring(s.base, s.members(func(be *backend) bool { return true }))
	if err := b.turn(s); err != nil {
		return nil, err
	}
	b.services[want.Address] = s
	return gone, b.writeService(s)
}

// members are the backends of a service, as its table needs them.
func (s *service) members(which func(*backend) bool) (all []Member) {
	for _, be := range s.sorted() {
		m := Member{ID: be.Addr.String(), Number: be.number}
		if which(be) {
			m.Weight = be.Weight
		}
		all = append(all, m)
	}
	return all
}

func (s *service) sorted() (all []*backend) {
	for _, be := range s.backends {
		all = append(all, be)
	}
	order.By(all, func(a, b *backend) int { return a.Addr.Compare(b.Addr) })
	return all
}

func (b *Balancer) freeService() (uint32, error) {
	taken := map[uint32]bool{}
	for _, s := range b.services {
		taken[s.number] = true
	}
	for n := range uint32(MaxServices) {
		if !taken[n] {
			return n, nil
		}
	}
	return 0, fmt.Errorf("there are %d services already", MaxServices)
}

func (b *Balancer) freeBackend() (uint16, error) {
	for n, be := range b.backends {
		if be == nil {
			return uint16(n), nil
		}
	}
	return 0, fmt.Errorf("there are %d backends already", MaxBackends)
}

// turn has new connections of a service go to the backends that take some, from one packet to the next.
func (b *Balancer) turn(s *service) error {
	s.ring = Ring(s.base, s.members((*backend).takes))
	value := abiBalanceRing{}
	copy(value.Backend[:], s.ring)
	inner, err := ebpf.NewMap(&ebpf.MapSpec{Name: "balance_ring", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(binary.Size(value)), MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("its table: %w", err)
	}
	defer inner.Close() // the map of maps keeps it
	if err := inner.Put(uint32(0), &value); err != nil {
		return fmt.Errorf("its table: %w", err)
	}
	return b.maps["balance_rings"].Put(s.number, uint32(inner.FD()))
}

func (b *Balancer) writeService(s *service) error {
	value := abiBalanceService{Seed: s.Seed, Number: s.number, None: uint8(s.None)}
	if s.QUIC != nil {
		value.Quic, value.QuicConfig, value.QuicLength = 1, s.QUIC.Config, s.QUIC.Length
	}
	key := s.key()
	err := b.maps["balance_services"].Put(&key, &value)
	b.changed()
	return err
}

// changed has programs look up services again.
func (b *Balancer) changed() { atomic.AddUint32(&b.memory.Values[0].Version, 1) }

// id is the key of a backend in balance_ids; nil: connection IDs name none.
func (s *service) id(be Backend) *abiBalanceId {
	if s.QUIC == nil {
		return nil
	}
	var id [MaxQUICID]byte
	copy(id[:], be.ID)
	return &abiBalanceId{Id: binary.NativeEndian.Uint64(id[:]), Service: s.number}
}

// unlist has connection IDs name a backend no more, unless they go on to do so in the same way.
func (b *Balancer) unlist(be *backend, next *abiBalanceId) error {
	if be.listed == nil || next != nil && *be.listed == *next {
		return nil
	}
	err := b.maps["balance_ids"].Delete(be.listed)
	be.listed = nil
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// writeBackend shows programs a backend as it is.
func (b *Balancer) writeBackend(be *backend) error {
	value := abiBalanceBackend{
		Addr: be.Addr.As16(), State: uint32(abiBalanceStateBALANCE_DOWN), Service: uint16(be.service.number),
		Forwarding: uint8(be.service.Forwarding), Out: be.out,
	}
	if be.source.IsValid() {
		value.Source = be.source.As16()
	}
	if be.Addr.Is6() {
		value.Ipv6 = 1
	}
	if be.up {
		value.State = uint32(abiBalanceStateBALANCE_UP)
	}
	if err := b.maps["balance_backends"].Put(uint32(be.number), &value); err != nil {
		return err
	}
	if be.listed = be.service.id(be.Backend); be.listed == nil {
		return nil
	}
	return b.maps["balance_ids"].Put(be.listed, uint32(be.number))
}

// end ends with a service. It returns its backends.
func (b *Balancer) end(s *service) (gone []*backend, err error) {
	key := s.key()
	err = b.maps["balance_services"].Delete(&key)
	b.changed()
	if err != nil {
		return nil, err
	}
	delete(b.services, s.Address)
	gone = s.sorted()
	return gone, b.maps["balance_rings"].Delete(s.number)
}

// release gives up the numbers of backends that are gone, once no packet and no connection has them any more.
func (b *Balancer) release(gone []*backend) error {
	if len(gone) == 0 {
		return nil
	}
	ended := map[uint64]bool{}
	for _, be := range gone {
		if err := b.maps["balance_backends"].Put(uint32(be.number), &abiBalanceBackend{}); err != nil {
			return err
		}
		if err := b.unlist(be, nil); err != nil {
			return err
		}
		ended[uint64(be.number)] = true
	}
	if err := b.core.Wait(); err != nil {
		return err
	}
	b.each(func(e entry) bool { return ended[e.backend()] })
	for _, be := range gone {
		b.backends[be.number] = nil
	}
	return nil
}

// SetHealth says whether a backend is healthy. Of one that is not, connections go elsewhere.
func (b *Balancer) SetHealth(at Address, addr netip.Addr, up bool) error {
	return b.do(func() error {
		s := b.services[at]
		if s == nil || s.backends[addr] == nil || s.backends[addr].up == up {
			return nil // it is gone, or as it was
		}
		be := s.backends[addr]
		be.up = up
		if up {
			return errors.Join(b.writeBackend(be), b.turn(s))
		}
		return errors.Join(b.turn(s), b.writeBackend(be)) // connections that move find the new table
	})
}

// byName sorts services for status.
func (b *Balancer) byName() (all []*service) {
	for _, s := range b.services {
		all = append(all, s)
	}
	order.By(all, func(x, y *service) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), x.Addr.Compare(y.Addr), cmp.Compare(x.Port, y.Port), cmp.Compare(x.Proto, y.Proto))
	})
	return all
}

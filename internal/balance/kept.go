package balance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/datapath"
)

// keptMaps are those by which the next agent knows the connections that programs of this one have, by the names of their pins.
var keptMaps = map[string]string{"connections": "balance_connections", "backends": "balance_backends", "services": "balance_services"}

// keptPrefix begins the names of directories with these pins, which are as this version has them.
var keptPrefix = fmt.Sprintf("balance-1-%d-%d-%d-", unsafe.Sizeof(abiBalanceBucket{}), unsafe.Sizeof(abiBalanceBackend{}), unsafe.Sizeof(abiBalanceService{}))

// former are maps of an agent before, whose programs may still run.
type former struct {
	dir         string
	maps        map[string]*ebpf.Map
	connections datapath.Mapped[abiBalanceBucket]
}

// keep pins the connection table once a program stays on an interface.
func (b *Balancer) keep() error {
	if b.kept || !b.core.Keeps() {
		return nil
	}
	dir := filepath.Join(b.core.Pins(), fmt.Sprint(keptPrefix, time.Now().UnixNano()))
	err := os.Mkdir(dir, 0o700)
	for pin, name := range keptMaps {
		if err == nil {
			err = b.maps[name].Pin(filepath.Join(dir, pin))
		}
	}
	if err != nil {
		return fmt.Errorf("balance: keeping the connection table: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	b.kept = true
	return nil
}

// findFormers opens what agents before have left.
func (b *Balancer) findFormers() {
	entries, err := os.ReadDir(b.core.Pins())
	if b.core.Pins() == "" || err != nil {
		return // there is nothing
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "balance-") {
			continue
		}
		f := &former{dir: filepath.Join(b.core.Pins(), e.Name()), maps: map[string]*ebpf.Map{}}
		if err := f.open(b.cfg.buckets()); err != nil {
			b.log.Warn("balance: connections of an agent before are not known", "pins", e.Name(), "error", err)
			f.close()
		}
		b.formers = append(b.formers, f)
	}
}

func (f *former) open(buckets uint32) error {
	if !strings.HasPrefix(filepath.Base(f.dir), keptPrefix) {
		return errors.New("another version wrote them")
	}
	for pin := range keptMaps {
		m, err := ebpf.LoadPinnedMap(filepath.Join(f.dir, pin), nil)
		if err != nil {
			return err
		}
		f.maps[pin] = m
	}
	if n := f.maps["connections"].MaxEntries(); n < buckets {
		return fmt.Errorf("its table had %d connections, and this one has %d: lower balance.connections to take them over", n*uint32(ways), buckets*uint32(ways))
	}
	return f.connections.Open(f.maps["connections"])
}

func (f *former) close() {
	f.connections.Close()
	for _, m := range f.maps {
		m.Close()
	}
	f.maps = nil
}

// inherit has connections stay on their backends that programs of agents before have balanced, and those go on to do so until this
// agent's are in their place: what it knows already stays. The caller is in core.Do.
func (b *Balancer) inherit() error {
	for _, f := range b.formers {
		if f.maps == nil {
			continue
		}
		numbers, err := b.renumber(f)
		if err != nil {
			return fmt.Errorf("balance: connections of an agent before: %w", err)
		}
		for i := range f.connections.Values {
			old := &f.connections.Values[i].Way
			for w := range old {
				e := entry(atomic.LoadUint64(&old[w]))
				if number, known := numbers[e.backend()]; known && e != 0 {
					b.add(uint32(i)&(b.cfg.buckets()-1), e.with(number))
				}
			}
		}
	}
	return nil
}

// with is the entry with another backend.
func (e entry) with(backend uint16) entry {
	return e&^(entry(MaxBackends-1)<<abiBalanceEntryBALANCE_BACKEND_SHIFT) | entry(backend)<<abiBalanceEntryBALANCE_BACKEND_SHIFT
}

// add adds an entry to a bucket where its connection is not known, and there is a free place.
func (b *Balancer) add(bucket uint32, e entry) {
	all := &b.connections.Values[bucket].Way
	for w := range all {
		if atomic.LoadUint64(&all[w])>>abiBalanceEntryBALANCE_HASH_SHIFT == uint64(e)>>abiBalanceEntryBALANCE_HASH_SHIFT {
			return
		}
	}
	for w := range all {
		if atomic.CompareAndSwapUint64(&all[w], 0, uint64(e)) {
			return
		}
	}
}

// renumber finds for each backend of an agent before the number that it has now. What the hash of a service began with must be the
// same.
func (b *Balancer) renumber(f *former) (map[uint64]uint16, error) {
	services := map[uint16]*service{}
	var key abiBalanceKey
	var value abiBalanceService
	each := f.maps["services"].Iterate()
	for each.Next(&key, &value) {
		at := Address{Addr: netip.AddrFrom16(key.Addr).Unmap(), Proto: key.Proto, Port: hostEndian(key.Port)}
		if s := b.services[at]; s != nil && s.Seed == value.Seed {
			services[uint16(value.Number)] = s
		}
	}
	if err := each.Err(); err != nil {
		return nil, err
	}
	numbers := map[uint64]uint16{}
	for n := range uint32(MaxBackends) {
		var be abiBalanceBackend
		if err := f.maps["backends"].Lookup(n, &be); err != nil {
			return nil, err
		}
		s := services[be.Service]
		if s == nil || be.State == uint32(abiBalanceStateBALANCE_FREE) {
			continue
		}
		addr := netip.AddrFrom16(be.Addr)
		if be.Ipv6 == 0 {
			addr = addr.Unmap()
		}
		if now := s.backends[addr]; now != nil {
			numbers[uint64(n)] = now.number
		}
	}
	return numbers, nil
}

func hostEndian(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

// settle ends with agents before, when no program of theirs runs any more.
func (b *Balancer) settle() error {
	if len(b.formers) == 0 {
		return nil
	}
	if err := b.inherit(); err != nil || !b.core.Claimed() {
		return err
	}
	var errs []error
	for _, f := range b.formers {
		f.close()
		errs = append(errs, os.RemoveAll(f.dir))
	}
	b.formers = nil
	if !b.core.Keeps() {
		_ = os.Remove(b.core.Pins()) // unless others have something there
	}
	return errors.Join(errs...)
}

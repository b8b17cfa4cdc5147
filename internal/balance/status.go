package balance

import (
	"fmt"

	"github.com/waymark-net/waymark/internal/flow"
)

// Counts are what became of packets.
type Counts struct {
	Packets    [results]uint64
	OverBudget uint64 // packets without an entry in the connection table: too many were new
	Full       uint64 // likewise: there was no space
	Moved      uint64 // connections whose backend was down or gone
}

// Port is an interface and what became of its packets that were for no service.
type Port struct {
	Iface            flow.Iface
	Mode             string // how the program at XDP is attached
	Clients, Unwraps bool   // what it does
	Off              string // why it does not; empty: it does
	Closed           string // why no packets leave by it
	Counts
}

// ServiceState is a service and what became of its packets.
type ServiceState struct {
	Service
	Counts
	Backends []BackendState
}

// BackendState is a backend and what it got.
type BackendState struct {
	Backend
	Up          bool
	Reason      string // why nothing gets there
	Entries     int    // of the table that chooses for new connections
	Connections uint64 // at present, as far as the connection table knows
	Opened      uint64 // connections that were added to it
	Packets     uint64
	Bytes       uint64
}

// Ports are all interfaces.
func (b *Balancer) Ports() (list []Port, err error) {
	err = b.do(func() error {
		for _, p := range b.sortedPorts() {
			one := Port{Iface: p.hook.Target.Iface, Mode: string(p.hook.Target.Early), Off: p.Off, Closed: p.Closed}
			one.Clients, one.Unwraps = b.cfg.Clients(p.hook.Target.Name), b.cfg.Unwraps(p.hook.Target.Name)
			if !p.attached {
				one.Mode, one.Off = "none", "it is not attached to"
			}
			if one.Counts, err = b.counts(p.place); err != nil {
				return err
			}
			list = append(list, one)
		}
		return nil
	})
	return list, err
}

func (b *Balancer) counts(index uint32) (sum Counts, err error) {
	var each []abiBalanceCount
	if err := b.maps["balance_counts"].Lookup(index, &each); err != nil {
		return sum, fmt.Errorf("reading what was balanced: %w", err)
	}
	for i := range each {
		for result, n := range each[i].Packets {
			sum.Packets[result] += n
		}
		sum.OverBudget += each[i].OverBudget
		sum.Full += each[i].Full
		sum.Moved += each[i].Moved
	}
	return sum, nil
}

// Services are all services with their backends.
func (b *Balancer) Services() (list []ServiceState, err error) {
	err = b.do(func() error {
		established := b.established()
		for _, s := range b.byName() {
			one := ServiceState{Service: s.Service}
			if one.Counts, err = b.counts(ports + s.number); err != nil {
				return err
			}
			entries := map[uint16]int{}
			for _, number := range s.ring {
				entries[number]++
			}
			for _, be := range s.sorted() {
				state := BackendState{Backend: be.Backend, Up: be.up, Reason: be.reason, Entries: entries[be.number], Connections: established[be.number]}
				var each []abiBalanceLoad
				if err := b.maps["balance_loads"].Lookup(uint32(be.number), &each); err != nil {
					return fmt.Errorf("reading what was balanced: %w", err)
				}
				for i := range each {
					state.Opened += each[i].Connections
					state.Packets += each[i].Packets
					state.Bytes += each[i].Bytes
				}
				one.Backends = append(one.Backends, state)
			}
			list = append(list, one)
		}
		return nil
	})
	return list, err
}

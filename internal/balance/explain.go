package balance

import (
	"encoding/binary"

	"github.com/waymark-net/waymark/internal/datapath"
)

// Explain has programs try frames at an interface.
func (b *Balancer) Explain(iface string, frames []datapath.MadeUp) ([]datapath.Explanation, error) {
	if b.core == nil {
		return nil, errNotLoaded
	}
	return b.core.Explain(iface, frames)
}

// choices are why a packet gets to its backend, by enum dry_choice.
var choices = map[abiDryChoice]string{
	abiDryChoiceDRY_CHOICE_RING: "maglev", abiDryChoiceDRY_CHOICE_KNOWN: "connection_known", abiDryChoiceDRY_CHOICE_QUIC: "connection_id",
}

var forwardingNames = map[Forwarding]string{L2: "l2", IPIP: "ipip", GUE: "gue"}

// explain reads what was noted of a frame.
func (b *Balancer) explain(h datapath.Hook, dry *datapath.Dry) *datapath.Decision {
	var note abiDryNote
	var to abiDryBackend
	if _, err := binary.Decode(dry.Note, binary.NativeEndian, &note); err != nil {
		return nil // unreachable: the note is as long
	}
	if _, err := binary.Decode(note.NextHop[:], binary.NativeEndian, &to); err != nil {
		return nil
	}
	p := b.ports[h.Target.Iface]
	result := abiBalanceResult(note.Balance) - 1
	switch {
	case p == nil:
		return nil
	case note.Balance == 0 || int(note.Balance) > results:
		return &datapath.Decision{Result: "off", To: datapath.ToKernel, Doc: p.Off}
	}
	d := &datapath.Decision{Result: Results[result].Name, To: Results[result].To, Doc: Results[result].Doc}
	if result <= abiBalanceResultBALANCE_LAST_PASSED && result != abiBalanceResultBALANCE_DONE {
		if result != abiBalanceResultBALANCE_NONE_PASSED || note.Forward != 0 {
			return d // forwarding has written over the rest
		}
	}
	for _, s := range b.services {
		if s.number == uint32(to.Service) {
			d.Service, d.Forwarding = s.Name, forwardingNames[s.Forwarding]
		}
	}
	switch result {
	case abiBalanceResultBALANCE_NONE_PASSED, abiBalanceResultBALANCE_NONE_DROPPED, abiBalanceResultBALANCE_REFUSED:
		return d
	}
	if be := b.backendOf(to.Backend); be != nil {
		d.Backend, d.Choice = be.Addr.String(), choices[abiDryChoice(to.Choice)]
	}
	switch result {
	case abiBalanceResultBALANCE_DONE:
		d.OutIndex = note.Out
	case abiBalanceResultBALANCE_TOO_BIG:
		d.MTU = note.Mtu
	}
	return d
}

func (b *Balancer) backendOf(number uint16) *backend {
	if int(number) < len(b.backends) {
		return b.backends[number]
	}
	return nil
}

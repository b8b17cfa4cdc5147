package pdm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/wire/pdm"
)

// Event is one packet that was marked, or read, on an interface of this host.
type Event struct {
	Time      time.Time
	Iface     flow.Iface
	Direction flow.Direction
	Local     netip.AddrPort // port 0 where the protocol has none; of a ping, its identifier
	Remote    netip.AddrPort
	Proto     uint8
	Option    pdm.Option // as on the wire

	// Of packets read: what they reported.
	Arrival               inband.Arrival
	Suspicion             inband.Suspicion
	HasServer, HasNetwork bool
	Server, Network       time.Duration
}

// Bits of pdm_event.has.
const (
	hasServer  = 1
	hasNetwork = 2
)

// errNoRaw is what callers get who did not ask for events.
var errNoRaw = errors.New("this probe reports no single packets: it was made with Raw 0")

// Stream emits marked packets one by one until ctx ends, as many as Config.Raw
// allows. There may be one stream at a time; the event is used again.
func (m *Marker) Stream(ctx context.Context, emit func(*Event)) error {
	var reader *datapath.Ringbuf
	err := m.do(func() (err error) {
		if m.cfg.Raw == 0 {
			return errNoRaw
		}
		reader, err = datapath.OpenRingbuf(m.maps["pdm_events"], 1)
		return err
	})
	if err != nil {
		return fmt.Errorf("ring of marked packets: %w", err)
	}
	defer reader.Close()

	var event Event
	offset := wallOffset{}
	for {
		more, err := reader.Wait(ctx)
		if err == nil && more {
			err = reader.Read(func(raw []byte) error {
				if len(raw) < int(unsafe.Sizeof(abiPdmEvent{})) {
					return fmt.Errorf("element of %d bytes", len(raw))
				}
				if err := offset.refresh(); err != nil {
					return err
				}
				if err := event.set((*abiPdmEvent)(unsafe.Pointer(&raw[0])), &offset); err != nil {
					return err
				}
				emit(&event)
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("ring of marked packets: %w", err)
		}
		if !more {
			return nil
		}
	}
}

// wallOffset is wall time less CLOCK_MONOTONIC, read again each second.
type wallOffset struct {
	ns   int64
	read time.Time
}

func (w *wallOffset) refresh() error {
	if now := time.Now(); now.Sub(w.read) > time.Second {
		at, err := datapath.Now()
		if err != nil {
			return err
		}
		w.ns, w.read = at.Wall-at.Mono, now
	}
	return nil
}

func (e *Event) set(raw *abiPdmEvent, offset *wallOffset) error {
	option, err := pdm.DecodeOption(raw.Option[:])
	if err != nil {
		return err
	}
	*e = Event{
		Time:      time.Unix(0, int64(raw.Time)+offset.ns).UTC(),
		Iface:     flow.Iface(raw.Iface),
		Direction: flow.Direction(raw.Direction),
		Local:     netip.AddrPortFrom(netip.AddrFrom16(raw.Key.Local), datapath.HostPort(raw.Key.Lport)),
		Remote:    netip.AddrPortFrom(netip.AddrFrom16(remoteOf(&raw.Key)), datapath.HostPort(raw.Key.Rport)),
		Proto:     raw.Key.Proto,
		Option:    option,
		Arrival:   inband.Arrival(raw.Arrival),
		Suspicion: inband.Suspicion(raw.Suspicion),
		HasServer: raw.Has&hasServer != 0, HasNetwork: raw.Has&hasNetwork != 0,
		Server: time.Duration(raw.Server), Network: time.Duration(raw.Network),
	}
	return nil
}

// Package device receives flows of devices without an agent: NetFlow, IPFIX and sFlow over UDP. Input: datagrams, of devices that the
// configuration names. Output: an interval of records for each device and scan interval, as an agent has them. Caller: the analyzer.
//
// One goroutine for each socket reads and counts; the kernel's buffer is the queue, and what it drops is counted. Another one hands
// intervals to the disk, so that a slow disk delays no datagram.
package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// Keeper keeps the intervals of one device.
type Keeper interface {
	Keep(e *store.Ended, boot, sequence uint64, h Heard) error
	// Allow reports whether a datagram of so many bytes is within the rate of a host.
	Allow(bytes int) bool
}

// Heard is what was learned of a device besides its flows.
type Heard struct {
	Address string
	Offset  time.Duration // of its clock, ahead of ours
	Bytes   uint64        // received since the interval before
}

// Deps are what a receiver is given in addition to its configuration.
type Deps struct {
	Log   *slog.Logger
	Warn  func(key, text string, args ...any) // logs what goes on, now and then
	Clock flow.Clock
	Open  func(name string) (Keeper, error) // a host of the analyzer
}

// Receiver receives from all devices.
type Receiver struct {
	cfg     *settings.Config
	deps    Deps
	devices map[netip.Addr]settings.Device
	sockets []*socket

	mu        sync.Mutex
	exporters map[exporterKey]*exporter
	shares    map[netip.Addr]*share
	failed    map[exporterKey]time.Time
}

type exporterKey struct {
	address netip.Addr
	domain  uint32
}

const (
	mostDomains = 64 // of one address
	lastRead    = 100 * time.Millisecond
	tryAgain    = 10 * time.Second // after an exporter could not be opened
)

// New prepares a receiver.
func New(cfg *settings.Config, deps Deps) *Receiver {
	r := &Receiver{cfg: cfg, deps: deps, devices: map[netip.Addr]settings.Device{}, exporters: map[exporterKey]*exporter{}, shares: map[netip.Addr]*share{}, failed: map[exporterKey]time.Time{}}
	for _, d := range cfg.Devices {
		if address, err := netip.ParseAddr(d.Address); err == nil { // checked before
			r.devices[address.Unmap()] = d
		}
	}
	return r
}

// Listen binds all sockets.
func (r *Receiver) Listen() error {
	for i := range r.cfg.Receive {
		s, err := r.open(&r.cfg.Receive[i])
		if err != nil {
			err = errors.Join(err, r.Close())
			r.sockets = nil
			return err
		}
		r.sockets = append(r.sockets, s)
	}
	return nil
}

// Close closes them.
func (r *Receiver) Close() error {
	var errs []error
	for _, s := range r.sockets {
		errs = append(errs, s.conn.Close())
	}
	return errors.Join(errs...)
}

// Run receives until ctx ends; then it hands on the last intervals.
func (r *Receiver) Run(ctx context.Context) error {
	var running sync.WaitGroup
	failed := make(chan error, len(r.sockets))
	for _, s := range r.sockets {
		running.Go(func() {
			if err := s.run(); err != nil {
				failed <- err
			}
		})
	}
	ticker := time.NewTicker(r.cfg.ScanInterval)
	defer ticker.Stop()
	var err error
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case err = <-failed:
			ended = true
		case <-ticker.C:
			r.keepAll()
		}
	}
	for _, s := range r.sockets { // what the kernel has already is read
		err = errors.Join(err, s.conn.SetReadDeadline(time.Now().Add(lastRead)))
	}
	running.Wait()
	r.keepAll()
	return errors.Join(err, r.Close())
}

func (r *Receiver) keepAll() {
	for _, e := range r.all() {
		e.keep(r.deps.Clock())
	}
}

func (r *Receiver) all() (list []*exporter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.exporters {
		list = append(list, e)
	}
	return list
}

// Reasons why a datagram is refused.
const (
	refusedUnknown  = "unknown_device"
	refusedProtocol = "other_protocol"
	refusedDomains  = "too_many_domains"
	refusedHost     = "no_host"
	refusedForm     = "malformed"
	droppedRate     = "rate"
)

// take reads a datagram that came at a socket; it returns why it was refused, and what that means.
func (r *Receiver) take(s *socket, from netip.AddrPort, b []byte) (refused, text string) {
	address := from.Addr().Unmap().WithZone("")
	known, ok := r.devices[address]
	if !ok && !s.cfg.Any {
		return refusedUnknown, "add its address to analyze.devices, or set any: true of analyze.receive"
	}
	h, err := decode.Peek(b)
	if err != nil {
		return refusedForm, err.Error()
	}
	if !s.takes(h.Protocol) {
		return refusedProtocol, fmt.Sprintf("%s is none of the protocols of this address in analyze.receive", h.Protocol)
	}
	e, refused, text := r.exporter(exporterKey{address, h.Domain}, known)
	if refused != "" {
		return refused, text
	}
	if !e.keeper.Allow(len(b)) {
		e.drop(droppedRate)
		r.deps.Warn("rate "+e.name, "a device sends more than analyze.rate: datagrams are lost", "host", e.name, "remedy", "set analyze.rate to more")
		return "", ""
	}
	e.take(&h, b, from.Port(), r.deps.Clock())
	return "", ""
}

// exporter is the one of a device and observation domain; the first datagram makes it.
func (r *Receiver) exporter(k exporterKey, known settings.Device) (e *exporter, refused, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e = r.exporters[k]; e != nil {
		return e, "", ""
	}
	domains := 0
	for other := range r.exporters {
		if other.address == k.address {
			domains++
		}
	}
	now := r.deps.Clock()
	switch at, ok := r.failed[k]; {
	case domains >= mostDomains:
		return nil, refusedDomains, fmt.Sprintf("it has more than %d observation domains", mostDomains)
	case ok && now.Sub(at) < tryAgain && now.After(at):
		return nil, refusedHost, "its records could not be kept"
	}
	name := nameOf(k, known.Name)
	keeper, err := r.deps.Open(name)
	if err != nil {
		if len(r.failed) >= 1024 {
			clear(r.failed)
		}
		r.failed[k] = now
		return nil, refusedHost, err.Error()
	}
	of := r.shares[k.address]
	if of == nil {
		of = &share{most: mostOfAddress}
		r.shares[k.address] = of
	}
	e = newExporter(name, keeper, of, k.address, k.domain, known.Sampling, now, r.deps.Warn)
	r.exporters[k] = e
	r.deps.Log.Info("a device sends for the first time", "host", name, "from", k.address, "domain", k.domain)
	return e, "", ""
}

// nameOf is that of a host: with the number of the observation domain, unless it is 0.
func nameOf(k exporterKey, name string) string {
	if name == "" {
		name = strings.ReplaceAll(k.address.String(), ":", "_")
	}
	if k.domain != 0 {
		name = fmt.Sprintf("%s-%d", name, k.domain)
	}
	return name
}

// Device is what the status shows of a host, and when it sent last; nil: it is none of a device that has sent since the start.
func (r *Receiver) Device(name string) (d *state.Device, seen time.Time) {
	for _, e := range r.all() {
		if e.name == name {
			return e.report()
		}
	}
	return nil, time.Time{}
}

// Status is that of all sockets.
func (r *Receiver) Status() []state.Receiver {
	list := []state.Receiver{}
	for _, s := range r.sockets {
		list = append(list, s.report())
	}
	return list
}

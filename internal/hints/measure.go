package hints

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/kernel"
)

// Measure counts the packets of interfaces by the hints that they have, for a time. Interfaces that have rates or a program
// at XDP, or whose drivers offer nothing, are left alone. The caller is in their namespace.
func Measure(ctx context.Context, devices []*Device, interval time.Duration) (err error) {
	var all []*counter
	defer func() {
		for _, c := range all {
			err = errors.Join(err, c.close())
		}
	}()
	for _, d := range devices {
		if d.RatesOf != "" {
			continue
		}
		if d.NotMeasured = d.obstacle(); d.NotMeasured != "" {
			continue
		}
		c, err := newCounter(d)
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("%w: counting the hints of %s: %w: run as root", kernel.ErrMissing, d.Name, err)
		}
		if err != nil {
			d.NotMeasured = err.Error()
			continue
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(interval):
	}
	for _, c := range all {
		if err := c.read(); err != nil {
			return err
		}
	}
	return nil
}

// obstacle is why hints cannot be counted; empty: they can.
func (d *Device) obstacle() string {
	switch {
	case !d.Reported:
		return ErrNotReported.Error()
	case d.Offered == 0:
		return "the driver offers none"
	case d.Program != nil && strings.HasPrefix(d.Program.Name, "waymark"):
		return "the agent's program is at XDP: hints.use: always has it count all hints"
	case d.Program != nil:
		return "another program is at XDP"
	}
	return ""
}

// counter is a program that counts on one interface.
type counter struct {
	device *Device
	counts *ebpf.Map
	link   link.Link
}

func newCounter(d *Device) (*counter, error) {
	spec, err := loadCount()
	if err != nil {
		return nil, fmt.Errorf("reading the built-in object: %w", err)
	}
	program := spec.Programs["waymark_hints"]
	program.Ifindex = uint32(d.IfIndex)
	program.Flags |= unix.BPF_F_XDP_DEV_BOUND_ONLY
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("loading a program for %s: %w", d.Name, err)
	}
	defer coll.Close()
	l, err := link.AttachXDP(link.XDPOptions{Program: coll.Programs["waymark_hints"], Interface: d.IfIndex, Flags: link.XDPDriverMode})
	if err != nil {
		return nil, fmt.Errorf("attaching a program to %s: %w", d.Name, err)
	}
	return &counter{device: d, counts: coll.DetachMap("hints_counts"), link: l}, nil
}

func (c *counter) close() error { return errors.Join(c.link.Close(), c.counts.Close()) }

func (c *counter) read() error {
	rates, err := ReadCounts(c.counts, 0)
	if err != nil {
		return fmt.Errorf("reading what was counted on %s: %w", c.device.Name, err)
	}
	for _, k := range Kinds() {
		c.device.SetRate(k, rates[k])
	}
	c.device.RatesOf = "measurement"
	return nil
}

// SetRate fills in how often a hint was there.
func (d *Device) SetRate(k Kind, r Rate) {
	for i := range d.Hints {
		if d.Hints[i].Kind == k {
			d.Hints[i].Rate = &r
		}
	}
}

// Rates are those of all kinds.
type Rates [kinds]Rate

// ReadCounts reads an element of hints_counts.
func ReadCounts(m *ebpf.Map, slot uint32) (rates Rates, err error) {
	var perCPU []countHintsCount
	if err := m.Lookup(slot, &perCPU); err != nil {
		return rates, err
	}
	for _, c := range perCPU {
		for k := range rates {
			rates[k].Present += c.Present[k]
			rates[k].Absent += c.Absent[k]
		}
	}
	return rates, nil
}

// ClearCounts begins at zero again.
func ClearCounts(m *ebpf.Map, slot uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	return m.Put(slot, make([]countHintsCount, cpus))
}

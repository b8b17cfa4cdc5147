package hints

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/topology"
)

// Device is an interface and what its driver offers.
type Device struct {
	Name    string `json:"name"`
	IfIndex int    `json:"ifindex"`
	Driver  string `json:"driver"` // of the network card, else the kind of the virtual interface
	Native  bool   `json:"native"` // the driver runs XDP programs
	// Reported: the kernel says what the driver offers.
	Reported bool     `json:"reported"`
	Clock    string   `json:"clock,omitempty"` // of the receive time: /dev/ptpN
	Program  *Program `json:"program,omitempty"`
	Offered  Offer    `json:"-"`
	// Hardware: the values come from a network card; otherwise the driver makes them.
	Hardware bool   `json:"hardware"`
	Hints    []Hint `json:"hints"`
	// RatesOf is who counted: the agent, since it is bound to the interface, or a measurement.
	RatesOf string `json:"rates_of,omitempty"`
	// NotMeasured is why there are no rates, if somebody asked for them.
	NotMeasured string `json:"not_measured,omitempty"`
}

// Program is the program at XDP of an interface.
type Program struct {
	ID   uint32 `json:"id"`
	Name string `json:"name"` // empty: the privilege to ask for it is missing
	Mode string `json:"mode"`
}

// Hint is one kind at a device.
type Hint struct {
	Kind    Kind   `json:"hint"`
	Offered bool   `json:"offered"`
	Source  string `json:"source"` // of the values of packets that have it: hardware, driver, computed
	Instead string `json:"instead"`
	// Rate is how often it was there; nil: not measured.
	Rate *Rate `json:"rate,omitempty"`
}

// Rate counts packets by whether they had a hint.
type Rate struct {
	Present uint64 `json:"present"`
	Absent  uint64 `json:"absent"`
}

// Share is that of the packets that had the hint.
func (r Rate) Share() float64 {
	if r.Present == 0 {
		return 0
	}
	return float64(r.Present) / float64(r.Present+r.Absent)
}

// Examine looks at an interface of the calling thread's namespace. It needs no privilege.
func Examine(name string) (*Device, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, err
	}
	return examine(l)
}

// ExamineIndex is Examine by the interface's index.
func ExamineIndex(ifindex int) (*Device, error) {
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil {
		return nil, fmt.Errorf("looking up interface %d: %w", ifindex, err)
	}
	return examine(l)
}

// ExamineAll looks at all interfaces except loopback.
func ExamineAll() (devices []*Device, err error) {
	links, err := topology.Links()
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, l := range links {
		if l.Attrs().EncapType == "loopback" {
			continue
		}
		d, err := examine(l)
		if errors.Is(err, unix.ENODEV) { // it went away
			continue
		}
		if err != nil {
			return nil, err
		}
		devices = append(devices, d)
	}
	order.By(devices, func(a, b *Device) int { return cmp.Compare(a.Name, b.Name) })
	return devices, nil
}

func examine(l netlink.Link) (*Device, error) {
	d := &Device{Name: l.Attrs().Name, IfIndex: l.Attrs().Index, Driver: l.Type()}
	if target, err := os.Readlink(filepath.Join("/sys/class/net", d.Name, "device/driver")); err == nil {
		d.Driver, d.Hardware = filepath.Base(target), true
	}
	n, err := queryNetdev(d.IfIndex)
	if err != nil && !errors.Is(err, ErrNotReported) {
		return nil, err
	}
	d.Reported, d.Native, d.Offered = err == nil, n.Native, n.Hints
	d.Program = programOf(l)
	d.Clock = clockOf(d.Name)
	for _, k := range Kinds() {
		d.Hints = append(d.Hints, Hint{Kind: k, Offered: d.Offered.Has(k), Source: d.source(k), Instead: k.Instead()})
	}
	return d, nil
}

// source is where the values of a kind come from, at best.
func (d *Device) source(k Kind) string {
	switch {
	case !d.Offered.Has(k):
		return "computed"
	case d.Hardware:
		return "hardware"
	}
	return "driver"
}

var xdpModes = map[uint32]string{1: "native", 2: "generic", 3: "offload", 4: "multiple"}

// programOf is the program at XDP; nil: none.
func programOf(l netlink.Link) *Program {
	x := l.Attrs().Xdp
	if x == nil || !x.Attached {
		return nil
	}
	p := &Program{ID: x.ProgId, Mode: xdpModes[x.AttachMode]}
	loaded, err := ebpf.NewProgramFromID(ebpf.ProgramID(x.ProgId))
	if err != nil {
		return p
	}
	defer loaded.Close()
	if info, err := loaded.Info(); err == nil {
		p.Name = info.Name
	}
	return p
}

// clockOf is the clock of the network card, with which it stamps packets; empty: it has none.
func clockOf(name string) string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolTsInfo(fd, name)
	if err != nil || info.Phc_index < 0 {
		return ""
	}
	return fmt.Sprintf("/dev/ptp%d", info.Phc_index)
}

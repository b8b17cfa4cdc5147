package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offload is a set of things that an interface does for the stack. On veth most
// mean that they are not done at all: a burst travels whole, a checksum stays
// unfinished.
type Offload uint8

const (
	TSO        Offload = 1 << iota // TCP bursts travel whole
	USO                            // UDP bursts (UDP_SEGMENT) travel whole
	GSO                            // the stack builds bursts for later software segmentation
	GRO                            // received packets are merged; off on a new veth
	TxChecksum                     // checksums are left unfinished; TSO and USO need it

	// VethDefault is on after an interface was made.
	VethDefault = TSO | USO | GSO | TxChecksum
)

// offloadFeatures are the kernel's names for each, as "ethtool -k" prints them.
var offloadFeatures = map[Offload][]string{
	TSO: {
		"tx-tcp-segmentation", "tx-tcp6-segmentation",
		"tx-tcp-ecn-segmentation", "tx-tcp-mangleid-segmentation",
	},
	USO:        {"tx-udp-segmentation"},
	GSO:        {"tx-generic-segmentation"},
	GRO:        {"rx-gro"},
	TxChecksum: {"tx-checksum-ip-generic"},
}

func (o Offload) features() []string {
	var names []string
	for _, bit := range slices.Sorted(maps.Keys(offloadFeatures)) {
		if o&bit != 0 {
			names = append(names, offloadFeatures[bit]...)
		}
	}
	return names
}

// SetOffloads switches the offloads of set on or off on every link of the lab,
// at both ends, and leaves others as they are.
func (l *Lab) SetOffloads(set Offload, on bool) error {
	for _, h := range l.hosts {
		for _, i := range h.Interfaces {
			if err := h.SetFeatures(i.Name, on, set.features()...); err != nil {
				return err
			}
			if l.wire == nil {
				continue
			}
			if err := l.wire.SetFeatures("to-"+h.Name, on, set.features()...); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetFeatures switches features of an interface by the kernel's names. A feature
// that the kernel does not switch is an error.
func (h *Host) SetFeatures(iface string, on bool, names ...string) error {
	err := h.Do(func() error { return SetFeatures(iface, on, names...) })
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// SetFeatures is Host.SetFeatures for an interface of the calling thread's network namespace.
func SetFeatures(iface string, on bool, names ...string) error {
	e, err := newEthtool(iface)
	if err == nil {
		defer e.close()
		err = e.set(on, names)
	}
	if err != nil {
		return fmt.Errorf("switch features of %s: %w", iface, err)
	}
	return nil
}

// Features are the features of an interface that are on now.
func (h *Host) Features(iface string) (map[string]bool, error) {
	var active map[string]bool
	err := h.Do(func() error {
		e, err := newEthtool(iface)
		if err != nil {
			return err
		}
		defer e.close()
		active, err = e.active()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read features of %s on host %s: %w", iface, h.Name, err)
	}
	return active, nil
}

// ethtool speaks the ioctl of linux/ethtool.h to one interface.
type ethtool struct {
	fd    int
	iface string
	names []string // of features, by bit
}

const (
	featureStrings = 4  // ETH_SS_FEATURES
	stringSize     = 32 // ETH_GSTRING_LEN
)

func newEthtool(iface string) (*ethtool, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	e := &ethtool{fd: fd, iface: iface}
	if err := e.readNames(); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (e *ethtool) close() { unix.Close(e.fd) }

// call hands a command and its buffer to the driver, which answers in the buffer.
func (e *ethtool) call(what string, buf []byte) error {
	// struct ifreq: a name of 16 bytes and, here, a pointer.
	var req struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:len(req.name)-1], e.iface)
	req.data = unsafe.Pointer(&buf[0])
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(e.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return fmt.Errorf("%s: %w", what, errno)
	}
	return nil
}

func (e *ethtool) readNames() error {
	// struct ethtool_sset_info: command, reserved, mask of sets (64 bits), a count.
	info := make([]byte, 20)
	native.PutUint32(info, unix.ETHTOOL_GSSET_INFO)
	native.PutUint64(info[8:], 1<<featureStrings)
	if err := e.call("count features", info); err != nil {
		return err
	}
	count := native.Uint32(info[16:])
	// struct ethtool_gstrings: command, set, count, the strings.
	strs := make([]byte, 12+count*stringSize)
	native.PutUint32(strs, unix.ETHTOOL_GSTRINGS)
	native.PutUint32(strs[4:], featureStrings)
	native.PutUint32(strs[8:], count)
	if err := e.call("list features", strs); err != nil {
		return err
	}
	for s := range slices.Chunk(strs[12:], stringSize) {
		name, _, _ := bytes.Cut(s, []byte{0})
		e.names = append(e.names, string(name))
	}
	return nil
}

func (e *ethtool) blocks() int { return (len(e.names) + 31) / 32 }

func (e *ethtool) active() (map[string]bool, error) {
	// struct ethtool_gfeatures: command, number of blocks, then four words a
	// block: available, requested, active, never changed.
	buf := make([]byte, 8+16*e.blocks())
	native.PutUint32(buf, unix.ETHTOOL_GFEATURES)
	native.PutUint32(buf[4:], uint32(e.blocks()))
	if err := e.call("read features", buf); err != nil {
		return nil, err
	}
	active := map[string]bool{}
	for bit, name := range e.names {
		word := native.Uint32(buf[8+16*(bit/32)+8:])
		active[name] = word&(1<<(bit%32)) != 0
	}
	return active, nil
}

func (e *ethtool) set(on bool, names []string) error {
	// struct ethtool_sfeatures: command, number of blocks, then two words a
	// block: which to change, and to what.
	buf := make([]byte, 8+8*e.blocks())
	native.PutUint32(buf, unix.ETHTOOL_SFEATURES)
	native.PutUint32(buf[4:], uint32(e.blocks()))
	for _, name := range names {
		bit := slices.Index(e.names, name)
		if bit < 0 {
			return fmt.Errorf("unknown feature %q", name)
		}
		word := buf[8+8*(bit/32):]
		native.PutUint32(word, native.Uint32(word)|1<<(bit%32))
		if on {
			native.PutUint32(word[4:], native.Uint32(word[4:])|1<<(bit%32))
		}
	}
	if err := e.call("set features", buf); err != nil {
		return err
	}
	// The kernel may accept a wish and not follow it.
	active, err := e.active()
	if err != nil {
		return err
	}
	var kept []string
	for _, name := range names {
		if active[name] != on {
			kept = append(kept, name)
		}
	}
	if len(kept) > 0 {
		return errors.New("the kernel did not switch " + strings.Join(kept, ", "))
	}
	return nil
}

var native = binary.NativeEndian

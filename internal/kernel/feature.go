// Package kernel knows what this kernel can do. All differences between kernels
// stand in one table: name, first version, probe, and what Waymark does where
// the feature is missing. The loader, waymark doctor and the tests read it.
package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Feature is one row of the table.
type Feature struct {
	Name    string
	Since   string // first kernel that has it
	Purpose string // what Waymark uses it for
	// Without says what is done where the kernel lacks the feature. Empty: the
	// eBPF probe can't run.
	Without string

	once  sync.Once
	err   error
	probe func() error
}

// Required reports whether the eBPF probe can't do without.
func (f *Feature) Required() bool { return f.Without == "" }

// Check asks the kernel, once: nil when the feature is there, else an error
// that wraps ebpf.ErrNotSupported, or unix.EPERM where privilege was missing.
func (f *Feature) Check() error {
	f.once.Do(func() { f.err = f.probe() })
	return f.err
}

// Has is Check as a condition.
func (f *Feature) Has() bool { return f.Check() == nil }

// The features, in the order in which kernels got them.
var (
	BPF = &Feature{
		Name: "tc-bpf", Since: "4.1", Purpose: "programs at tc",
		probe: func() error { return features.HaveProgramType(ebpf.SchedCLS) },
	}
	Clsact = &Feature{
		Name: "clsact", Since: "4.5", Purpose: "attaching where there is no TCX",
		Without: "TCX is needed then",
		// A qdisc is a module that is loaded on first use, which only the
		// attaching itself can tell.
		probe: BPF.Check,
	}
	KernelBTF = &Feature{
		Name: "btf", Since: "4.18", Purpose: "hints of the network card; type names in bpftool",
		Without: "the flow probe does not need it",
		probe:   probeBTF,
	}
	MmapableArray = &Feature{
		Name: "mmapable-array", Since: "5.5", Purpose: "draining the flow table without a system call per flow",
		probe: probeMmapable,
	}
	Ticks = &Feature{
		Name: "jiffies64", Since: "5.6", Purpose: "time of a packet without reading a clock",
		probe: func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnJiffies64) },
	}
	RingBuffer = &Feature{
		Name: "ringbuf", Since: "5.8", Purpose: "flows that leave a full table",
		probe: func() error { return features.HaveMapType(ebpf.RingBuf) },
	}
	SocketBuffer = &Feature{
		Name: "socket-buffer", Since: "5.8", Purpose: "exact counts of GSO frames in any tunnel, and of UFO",
		Without: "tunnels are looked into: VXLAN, Geneve, GRE and IP in IP are counted exactly, others and UFO are not",
		probe:   probeSocketBuffer,
	}
	Atomics = &Feature{
		Name: "bpf-atomics", Since: "5.12", Purpose: "unique sequence numbers of marked packets on all processors",
		probe: probeAtomics,
	}
	FunctionPointers = &Feature{
		Name: "function-pointers", Since: "5.12", Purpose: "functions with pointers to memory, which the verifier looks at once",
		// Of the same version as atomics, which are easier to ask for.
		probe: Atomics.Check,
	}
	CheckMTU = &Feature{
		Name: "check-mtu", Since: "5.12", Purpose: "marking that never makes a packet too large",
		probe: func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnCheckMtu) },
	}
	DeliveryTime = &Feature{
		Name: "delivery-time", Since: "5.18", Purpose: "transit delay and egress interface in traces (ioam)",
		Without: "both are reported as not available",
		probe:   func() error { return features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbSetTstamp) },
	}
	XDPHints = &Feature{
		Name: "xdp-hints", Since: "6.3", Purpose: "receive time, hash and VLAN tag of the network card at XDP (waymark hints)",
		Without: "programs compute them",
		probe:   probeXDPHints,
	}
	TransmitFeatures = &Feature{
		Name: "xdp-transmit", Since: "6.3", Purpose: "knowing which interfaces send frames of XDP (forward)",
		Without: "forward is refused, and the kernel forwards",
		probe:   probeTransmitFeatures,
	}
	SocketMap = &Feature{
		Name: "xdp-sockets", Since: "4.18", Purpose: "packets with their hints for AF_XDP sockets (hints.metadata)",
		Without: "no socket gets packets from the agent's program",
		probe:   func() error { return features.HaveMapType(ebpf.XSKMap) },
	}
	TCX = &Feature{
		Name: "tcx", Since: "6.6", Purpose: "attaching that ends with the agent, in order with other programs",
		Without: "clsact filters, which the next agent removes if this one is killed",
		probe:   probeTCX,
	}
	FlowTables = &Feature{
		Name: "flow-tables", Since: "6.11", Purpose: "forwarding flows of nftables' flow tables at XDP, with their address translation (forward)",
		Without: "where netfilter has rules, the kernel forwards",
		probe:   probeFlowTables,
	}
	Membarrier = &Feature{
		Name: "membarrier", Since: "4.3", Purpose: "waiting until no program uses the other half of the table",
		Without: "a map-in-map update, which waits for the same thing",
		probe:   probeMembarrier,
	}
)

// Features is the whole table.
func Features() []*Feature {
	return []*Feature{BPF, Membarrier, Clsact, KernelBTF, MmapableArray, Ticks, RingBuffer, SocketBuffer, FunctionPointers, Atomics, CheckMTU, DeliveryTime, XDPHints, TransmitFeatures, SocketMap, TCX, FlowTables}
}

// ErrMissing marks errors of a missing kernel feature or privilege.
var ErrMissing = errors.New("missing kernel feature or privilege")

// Require returns an error that wraps ErrMissing and names the first privilege
// or required feature that is not there, and the remedy.
func Require() error {
	if c := byteOrder(binary.NativeEndian); c.State == StateMissing {
		return fmt.Errorf("%w: the eBPF probe needs a little-endian processor, found %s: %s", ErrMissing, c.Found, c.Remedy)
	}
	for _, c := range privileges() {
		if c.State == StateMissing {
			return fmt.Errorf("%w: %s, for %s: run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON; or set probe: afpacket, which takes CAP_NET_RAW",
				ErrMissing, strings.ToUpper(c.Name), c.Purpose)
		}
	}
	for _, f := range Features() {
		err := f.Check()
		switch {
		case err == nil || !f.Required():
		case errors.Is(err, unix.EPERM):
			return fmt.Errorf("%w: loading BPF programs is not permitted: run as root, or with CAP_BPF and CAP_NET_ADMIN", ErrMissing)
		default:
			return fmt.Errorf("%w: %s (Linux %s): %w: update the kernel, or set probe: afpacket", ErrMissing, f.Name, f.Since, err)
		}
	}
	return nil
}

// RequireNetns returns an error that wraps ErrMissing unless other network
// namespaces may be entered.
func RequireNetns() error {
	if have, err := cap.GetProc().GetFlag(cap.Effective, cap.SYS_ADMIN); err == nil && have {
		return nil
	}
	return fmt.Errorf("%w: CAP_SYS_ADMIN, for entering other network namespaces: run as root, or take netns out of the configuration", ErrMissing)
}

// probeAtomics loads an addition that returns what was there before.
func probeAtomics() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, 0),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.FetchAdd.Mem(asm.RFP, asm.R0, asm.DWord, -8),
			asm.Return(),
		},
	})
	if err != nil {
		if errors.Is(err, unix.EPERM) {
			return err
		}
		return fmt.Errorf("%w: %w", err, ebpf.ErrNotSupported)
	}
	return prog.Close()
}

func probeBTF() error {
	if _, err := os.Stat(typesFile); err != nil {
		return fmt.Errorf("no type information: %w: %w", err, ebpf.ErrNotSupported)
	}
	return nil
}

// probeXDPHints looks for the functions that read hints. Which of them a driver has is up to the driver.
func probeXDPHints() error { return typeFacts().noHints }

// probeTransmitFeatures looks for the netlink family that reports them.
func probeTransmitFeatures() error {
	if _, err := netlink.GenlFamilyGet("netdev"); err != nil {
		return fmt.Errorf("no netlink family netdev: %w: %w", err, ebpf.ErrNotSupported)
	}
	return nil
}

func probeMmapable() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return err
	}
	return m.Close()
}

// probeTCX attaches to an interface that cannot exist: a kernel with TCX looks
// for it (ENODEV), one without does not know the command.
func probeTCX() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	defer prog.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: 1<<31 - 1, Program: prog, Attach: ebpf.AttachTCXIngress})
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, unix.ENODEV):
		return nil
	}
	return err
}

const (
	membarrierQuery  = 0
	membarrierGlobal = 1
)

func probeMembarrier() error {
	got, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, membarrierQuery, 0, 0)
	if errno != 0 {
		return fmt.Errorf("membarrier: %w: %w", errno, ebpf.ErrNotSupported)
	}
	if got&membarrierGlobal == 0 {
		return fmt.Errorf("membarrier: no global command (nohz_full): %w", ebpf.ErrNotSupported)
	}
	return nil
}

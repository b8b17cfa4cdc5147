package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// State is the outcome of a check.
type State string

// Ordered from good to bad.
const (
	StateOK       State = "ok"
	StateDegraded State = "degraded" // something else is done instead
	StateUnknown  State = "unknown"  // only root can ask
	StateMissing  State = "missing"  // the eBPF probe cannot run
)

// Check is one line of waymark doctor.
type Check struct {
	Name    string `json:"name"`
	State   State  `json:"state"`
	Since   string `json:"since,omitempty"`   // first kernel with it
	Purpose string `json:"purpose,omitempty"` // what it is for
	Found   string `json:"found,omitempty"`   // what is there
	Instead string `json:"instead,omitempty"` // what is done without
	Remedy  string `json:"remedy,omitempty"`  // how to get it
}

// Examine checks privileges, the feature table and settings of this host.
func Examine() []Check {
	checks := privileges()
	if os.Geteuid() != 0 {
		checks = asUser(checks)
	}
	for _, f := range Features() {
		checks = append(checks, f.examine())
	}
	return append(checks, byteOrder(binary.NativeEndian), jit(), processors(), realtime())
}

// needsRoot is found where only root can ask.
const needsRoot = "needs root"

// asUser reports the privileges that a user lacks as unknown: the agent need not
// run as that user.
func asUser(checks []Check) []Check {
	for i := range checks {
		if c := &checks[i]; c.State != StateOK {
			c.State, c.Found, c.Instead, c.Remedy = StateUnknown, needsRoot, "", ""
		}
	}
	return checks
}

func (f *Feature) examine() Check {
	c := Check{Name: f.Name, State: StateOK, Since: f.Since, Purpose: f.Purpose}
	err := f.Check()
	switch {
	case err == nil:
		return c
	case errors.Is(err, unix.EPERM) && os.Geteuid() != 0:
		c.State, c.Found = StateUnknown, needsRoot
		return c
	case errors.Is(err, unix.EPERM) && !errors.Is(err, ebpf.ErrNotSupported):
		c.State, c.Found = StateMissing, "not permitted to ask the kernel"
		c.Remedy = "run as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON"
		return c
	case f.Required():
		c.State, c.Remedy = StateMissing, "update the kernel"
	default:
		c.State, c.Instead = StateDegraded, f.Without
	}
	c.Found = err.Error()
	return c
}

// Capability is one that the agent uses, and for what.
type Capability struct {
	Value   cap.Value
	Purpose string
	Without string // what is done without; empty: the eBPF probe can't run
}

// Capabilities are all that the agent can use, with root's rights or without.
func Capabilities() []Capability {
	return []Capability{
		{cap.BPF, "making maps and loading programs", ""},
		{cap.NET_ADMIN, "attaching programs to interfaces", ""},
		{cap.PERFMON, "loading programs with pointer arithmetic; dropped once they are loaded", ""},
		{cap.NET_RAW, "packet sockets", "needed for probe: afpacket only"},
		{cap.SYS_ADMIN, "entering other network namespaces; loading programs that read flow tables of nftables", "needed for netns, and for forward with flow tables"},
	}
}

func privileges() []Check {
	now := cap.GetProc()
	var checks []Check
	for _, need := range Capabilities() {
		c := Check{Name: need.Value.String(), State: StateOK, Purpose: need.Purpose}
		if have, err := now.GetFlag(cap.Effective, need.Value); err != nil || !have {
			c.State, c.Instead = StateDegraded, need.Without
			if need.Without == "" {
				c.State = StateMissing
			}
			c.Found = "this process does not have it"
			c.Remedy = "run as root, or add it to AmbientCapabilities of the service"
		}
		checks = append(checks, c)
	}
	return checks
}

// byteOrder checks that the programs are made for this processor: the flow table
// is written in words of a little-endian one.
func byteOrder(native binary.ByteOrder) Check {
	c := Check{Name: "byte-order", State: StateOK, Purpose: "programs compiled for little-endian processors"}
	if native.Uint16([]byte{1, 0}) != 1 {
		c.State, c.Found = StateMissing, "a big-endian processor"
		c.Remedy = "set probe: afpacket"
	}
	return c
}

func jit() Check {
	c := Check{Name: "bpf-jit", State: StateOK, Since: "3.16", Purpose: "programs as machine code"}
	const path = "/proc/sys/net/core/bpf_jit_enable"
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		c.Found = "always on in this kernel"
	case err != nil:
		c.State, c.Found = StateDegraded, err.Error()
	case strings.TrimSpace(string(text)) == "0":
		c.State, c.Found = StateDegraded, "off"
		c.Instead = "the kernel interprets the programs, several times slower"
		c.Remedy = "sysctl -w net.core.bpf_jit_enable=1"
	}
	return c
}

// processors tells of processors that may be plugged in later.
func processors() Check {
	c := Check{Name: "processors", State: StateOK, Purpose: "a partition of the flow table for each"}
	online, errOnline := CPUs("online")
	possible, errPossible := CPUs("possible")
	if err := errors.Join(errOnline, errPossible); err != nil {
		c.State, c.Found = StateDegraded, err.Error()
		return c
	}
	c.Found = fmt.Sprintf("%d online", online)
	if possible > online {
		c.Found += fmt.Sprintf(" of %d possible", possible)
		c.Instead = "packets on processors that come later are counted by reason (cpu_unknown) until a restart"
	}
	return c
}

// realtime tells of a kernel that may let one packet's programs interrupt
// another's on the same processor.
func realtime() Check {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Check{Name: "realtime", State: StateDegraded, Found: err.Error()}
	}
	return realtimeOf(unix.ByteSliceToString(name.Version[:]))
}

// realtimeOf judges by what uname -v tells: there is no other way to ask.
func realtimeOf(version string) Check {
	c := Check{Name: "realtime", State: StateOK, Purpose: "one packet at a time on a processor, so that counting takes no lock"}
	if strings.Contains(version, "PREEMPT_RT") {
		c.State, c.Found = StateDegraded, "PREEMPT_RT"
		c.Instead = "from Linux 6.18 on, counts may be inexact"
		c.Remedy = "a kernel with CONFIG_PREEMPT_RT_NEEDS_BH_LOCK=y"
	}
	return c
}

// CPUs is one more than the highest processor that is online, possible or
// present, as /sys/devices/system/cpu says.
func CPUs(which string) (int, error) {
	text, err := os.ReadFile(filepath.Join("/sys/devices/system/cpu", which))
	if err != nil {
		return 0, fmt.Errorf("counting processors: %w", err)
	}
	s := strings.TrimSpace(string(text))
	n, err := strconv.Atoi(s[strings.LastIndexAny(s, ",-")+1:])
	if err != nil {
		return 0, fmt.Errorf("counting processors: %q in %s", s, which)
	}
	return n + 1, nil
}

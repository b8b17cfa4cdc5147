package lab

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpf -output-suffix el -no-global-types slow ../../bpf/test/slow.bpf.c -- -I../../bpf -mcpu=v3 -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// MaxSlow is the longest time that a packet may wait: a CPU does nothing else meanwhile.
const MaxSlow = 10 * time.Millisecond

// checkSlow reports a delay that Slow refuses; the error wraps ErrConfig.
func checkSlow(delay time.Duration) error {
	if delay <= 0 || delay > MaxSlow {
		return configError(fmt.Sprintf("delay %v of a slow host: choose up to %v", delay, MaxSlow))
	}
	return nil
}

// Slow delays each packet that arrives at the host, after the agent has seen it arrive: it
// takes that long within the host. The lab's end undoes it.
func (h *Host) Slow(delay time.Duration) error {
	if err := checkSlow(delay); err != nil {
		return err
	}
	spec, err := loadSlow()
	if err != nil {
		return fmt.Errorf("slow host %s: %w", h.Name, err)
	}
	if err := spec.Variables["slow_ns"].Set(uint64(delay)); err != nil {
		return fmt.Errorf("slow host %s: %w", h.Name, err)
	}
	coll, err := ebpf.NewCollection(spec)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) {
		err = fmt.Errorf("%w: a slow host needs Linux 5.17 (bpf_loop)", err)
	}
	if err != nil {
		return fmt.Errorf("slow host %s: %w", h.Name, err)
	}
	defer coll.Close() // the filters keep the program
	for _, i := range h.Interfaces {
		if err := h.Do(func() error { return addFilter(i.Name, coll.Programs["lab_slow"]) }); err != nil {
			return fmt.Errorf("slow host %s: %w", h.Name, err)
		}
	}
	return nil
}

// addFilter attaches a program to tc ingress, after all others.
func addFilter(iface string, p *ebpf.Program) error {
	link, err := netlink.LinkByName(iface)
	if err != nil {
		return fmt.Errorf("find %s: %w", iface, err)
	}
	at := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
	if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: at, QdiscType: "clsact"}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact to %s: %w", iface, err)
	}
	const last = 0xffff // priority
	err = netlink.FilterReplace(&netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_INGRESS, Handle: 1, Priority: last, Protocol: unix.ETH_P_ALL,
		},
		Fd: p.FD(), Name: "lab_slow", DirectAction: true,
	})
	if err != nil {
		return fmt.Errorf("add filter to %s: %w", iface, err)
	}
	return nil
}

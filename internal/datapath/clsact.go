package datapath

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Filters of clsact outlive their process, so their name says whose they are:
// waymark:PID:START:NUMBER, with the start time that tells a process from a
// later one with the same id.
const filterPrefix = "waymark:"

var filterNumber atomic.Uint32

// attachClsact adds a direct-action filter, after taking away those of agents
// that are gone. Its program answers "unspecified", so that filters behind it run.
func attachClsact(ifindex int, direction flow.Direction, program *ebpf.Program) (*hook, error) {
	qdisc := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: ifindex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		},
		QdiscType: "clsact",
	}
	added := netlink.QdiscAdd(qdisc)
	if added != nil && !errors.Is(added, unix.EEXIST) {
		return nil, fmt.Errorf("adding qdisc clsact (module sch_ingress): %w", added)
	}
	parent := parentOf(direction)
	if err := removeStale(ifindex, parent); err != nil {
		return nil, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, err
	}
	filter := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: ifindex, Parent: parent, Protocol: unix.ETH_P_ALL, Priority: clsactPriority,
		},
		Fd: program.FD(), DirectAction: true,
		Name: fmt.Sprintf("%s%d:%s:%d", filterPrefix, os.Getpid(), start, filterNumber.Add(1)),
	}
	if err := netlink.FilterAdd(filter); err != nil {
		return nil, fmt.Errorf("adding filter (module cls_bpf): %w", err)
	}
	// The kernel chose the handle, by which the filter is removed.
	if filter.Handle, err = handleOf(ifindex, parent, filter.Name); err != nil {
		return nil, err
	}
	remove := func() error {
		err := netlink.FilterDel(filter)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
			return nil // gone with its interface or qdisc
		}
		if err == nil && added == nil && unused(ifindex) {
			err = netlink.QdiscDel(qdisc)
		}
		return err
	}
	replace := func(p *ebpf.Program) error {
		next := *filter
		next.Fd = p.FD()
		return netlink.FilterReplace(&next)
	}
	return &hook{mode: ModeClsact, update: replace, close: remove, ahead: func() ([]string, error) {
		var links []string
		if kernel.TCX.Has() { // they run before all filters
			var err error
			if links, err = foreignTCX(ifindex, direction, 0); err != nil {
				return nil, err
			}
		}
		filters, err := foreignFilters(ifindex, parent, filter.Name)
		return append(links, filters...), err
	}}, nil
}

// unused reports whether a clsact qdisc has no filter left in either direction.
func unused(ifindex int) bool {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		if filters, err := netlink.FilterList(link, parent); err != nil || len(filters) > 0 {
			return false
		}
	}
	return true
}

// clsactPriority leaves room for filters that must run before.
const clsactPriority = 100

func handleOf(ifindex int, parent uint32, name string) (uint32, error) {
	filters, err := netlink.FilterList(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, parent)
	if err != nil {
		return 0, fmt.Errorf("listing filters: %w", err)
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Name == name {
			return b.Handle, nil
		}
	}
	return 0, fmt.Errorf("filter %s is gone as soon as it was added", name)
}

// removeStale deletes filters of agents that no longer run.
func removeStale(ifindex int, parent uint32) error {
	link := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}
	filters, err := netlink.FilterList(link, parent)
	if err != nil {
		return fmt.Errorf("listing filters: %w", err)
	}
	for _, f := range filters {
		b, ok := f.(*netlink.BpfFilter)
		if !ok || !strings.HasPrefix(b.Name, filterPrefix) || ownerRuns(b.Name) {
			continue
		}
		if err := netlink.FilterDel(b); err != nil {
			return fmt.Errorf("removing filter %s of an agent that is gone: %w", b.Name, err)
		}
	}
	return nil
}

func ownerRuns(name string) bool {
	fields := strings.Split(strings.TrimPrefix(name, filterPrefix), ":")
	pid, err := strconv.Atoi(fields[0])
	if err != nil || len(fields) < 2 {
		return false
	}
	start, err := startTime(pid)
	return err == nil && start == fields[1]
}

// startTime is field 22 of /proc/PID/stat: clock ticks after boot.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The command, field 2, stands in parentheses and may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("process %d: unexpected stat", pid)
	}
	return fields[19], nil
}

package agent

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// needs are the capabilities that the agent keeps for the time after its start:
// what attaching to interfaces that appear later takes, and no more.
func (a *Agent) needs() []cap.Value {
	var keep []cap.Value
	if a.probe.Name() == "ebpf" {
		keep = append(keep, cap.BPF, cap.NET_ADMIN)
		if len(a.cfg.Netns) > 0 {
			// Each namespace gets programs of its own, which the verifier accepts
			// only with the pointer arithmetic that PERFMON allows.
			keep = append(keep, cap.PERFMON)
		}
	} else {
		keep = append(keep, cap.NET_RAW)
	}
	if len(a.cfg.Netns) > 0 {
		keep = append(keep, cap.SYS_ADMIN) // setns
	}
	return keep
}

// dropPrivileges gives up, in all threads and permanently, every capability but
// those named; what is not there already is no error.
func dropPrivileges(keep []cap.Value) error {
	now := cap.GetProc()
	want := cap.NewSet()
	for _, v := range keep {
		have, err := now.GetFlag(cap.Permitted, v)
		if err != nil {
			return fmt.Errorf("reading capability %v: %w", v, err)
		}
		if !have {
			continue
		}
		if err := want.SetFlag(cap.Permitted, true, v); err != nil {
			return fmt.Errorf("keeping capability %v: %w", v, err)
		}
		if err := want.SetFlag(cap.Effective, true, v); err != nil {
			return fmt.Errorf("keeping capability %v: %w", v, err)
		}
	}
	if err := dropBounding(keep); err != nil {
		return err
	}
	if err := want.SetProc(); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

// dropBounding keeps programs that this one might start from getting back what
// it gave up. It takes CAP_SETPCAP, without which there is nothing to drop.
func dropBounding(keep []cap.Value) error {
	now := cap.GetProc()
	if ok, err := now.GetFlag(cap.Effective, cap.SETPCAP); err != nil || !ok {
		return err
	}
	kept := map[cap.Value]bool{}
	for _, v := range keep {
		kept[v] = true
	}
	for v := range cap.MaxBits() {
		if kept[v] {
			continue
		}
		if err := cap.DropBound(v); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("dropping capability %v from the bounding set: %w", v, err)
		}
	}
	return nil
}

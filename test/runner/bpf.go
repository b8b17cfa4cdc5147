package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// pins lists what is below the sandbox's bpffs. After a package's processes have ended, its programs live on by a pin,
// or by an interface of its namespace: both are found there, and name the package.
func pins(found traces) error {
	return filepath.WalkDir(bpffs, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // just removed
		}
		if err != nil {
			return fmt.Errorf("list pins: %w", err)
		}
		if path == bpffs {
			return nil
		}
		what := "pin " + path
		if prog, err := ebpf.LoadPinnedProgram(path, nil); err == nil {
			what += " of a program"
			if info, err := prog.Info(); err == nil {
				id, _ := info.ID()
				what = fmt.Sprintf("pin %s of BPF program %d (%s, %s)", path, id, info.Name, info.Type)
			}
			prog.Close()
		}
		found[what] = true
		return nil
	})
}

// programsAtTCX lists those on an interface; a kernel before 6.6 has no such hook.
func programsAtTCX(found traces, l netlink.Link) error {
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		on, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: at})
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV) {
			return nil // or the interface has just gone
		}
		if err != nil {
			return fmt.Errorf("list the programs at %v of %s: %w", at, l.Attrs().Name, err)
		}
		for _, prog := range on.Programs {
			what, err := describeProgram(prog.ID)
			if err != nil {
				return err
			}
			found[fmt.Sprintf("%s at %v of %s", what, at, l.Attrs().Name)] = true
		}
	}
	return nil
}

// bpfObjects lists programs and links of the whole machine: what neither a sandbox's end nor that of its processes
// released. What another process holds open is that one's, as is what guards control groups: init systems load such
// programs at any time.
func bpfObjects(found traces) error {
	others, err := heldByOthers()
	if err != nil {
		return err
	}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("list BPF programs: %w", err)
		}
		id = next
		what, err := describeProgram(id)
		if err != nil {
			return err
		}
		if what != "" && !others[fmt.Sprintf("prog_id %d", id)] {
			found[what] = true
		}
	}
	// A link that is being made or released has a number and cannot be opened.
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err = findLinks(found, others); !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("list BPF links: %w", err)
	}
	return nil
}

// describeProgram is empty for programs that are not looked at.
func describeProgram(id ebpf.ProgramID) (string, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil // just freed
	}
	if err != nil {
		return "", fmt.Errorf("open BPF program %d: %w", id, err)
	}
	defer prog.Close()
	info, err := prog.Info()
	if err != nil {
		return "", fmt.Errorf("ask for BPF program %d: %w", id, err)
	}
	switch info.Type {
	case ebpf.CGroupSKB, ebpf.CGroupSock, ebpf.CGroupSockAddr, ebpf.CGroupSockopt,
		ebpf.CGroupSysctl, ebpf.CGroupDevice, ebpf.LSM:
		return "", nil
	}
	return fmt.Sprintf("BPF program %d (%s, %s)", id, info.Name, info.Type), nil
}

// heldByOthers reads from /proc which programs ("prog_id 7") and links ("link_id 7") other processes have open.
// When it is asked, no process of the tests runs.
func heldByOthers() (map[string]bool, error) {
	held := map[string]bool{}
	self := strconv.Itoa(os.Getpid())
	files, err := filepath.Glob("/proc/[0-9]*/fdinfo/*")
	if err != nil {
		return nil, fmt.Errorf("list open files: %w", err)
	}
	for _, file := range files {
		if strings.Split(file, "/")[2] == self {
			continue
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}
		for line := range strings.Lines(string(raw)) {
			key, value, _ := strings.Cut(line, ":")
			if key == "prog_id" || key == "link_id" {
				held[key+" "+strings.TrimSpace(value)] = true
			}
		}
	}
	return held, nil
}

// findLinks adds the BPF links that nobody else holds.
func findLinks(found traces, others map[string]bool) error {
	links := &link.Iterator{}
	defer links.Close()
	for links.Next() {
		if id := links.ID; !others[fmt.Sprintf("link_id %d", id)] {
			found[fmt.Sprintf("BPF link %d", id)] = true
		}
	}
	return links.Err()
}

package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/topology"
)

// Open files that the agent needs.
const (
	baseFiles     = 112 // maps and programs, some of them twice while programs load; sockets
	spareFiles    = 32  // connections to the API, files of exporters
	filesPerHook  = 1   // a link of TCX
	filesPerNetns = 12  // the namespace, two netlink sockets, two programs; more while they load
)

const filesRemedy = "raise LimitNOFILE= of the service, or: prlimit --nofile=N --pid PID"

// fileLimit is RLIMIT_NOFILE: what holds, and up to what it may be raised.
func fileLimit() (soft, hard uint64) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0
	}
	return l.Cur, l.Max
}

// raiseFileLimit raises the soft limit to the hard one, and returns it. The Go
// runtime does so once at the start; an administrator may do more later.
func raiseFileLimit() uint64 {
	soft, hard := fileLimit()
	if soft < hard && unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: hard, Max: hard}) == nil {
		return hard
	}
	return soft
}

// openFiles counts the files that are open now.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

// checkFiles refuses a limit with which nothing can be counted, before the
// kernel's errors about it hide the reason, and warns of one with which not all
// of the interfaces that exist can be.
func (a *Agent) checkFiles() error {
	limit := raiseFileLimit()
	survey, err := topology.Look(a.watch)
	if err != nil && !errors.Is(err, unix.EMFILE) {
		return err
	}
	hooks := 0
	for _, name := range survey.Interfaces {
		hooks += len(a.cfg.Directions(name))
	}
	least := uint64(openFiles() + baseFiles)
	needed := least + uint64(spareFiles+hooks*filesPerHook+survey.Netns*filesPerNetns)
	switch {
	case limit < least:
		return fmt.Errorf("the limit of open files (RLIMIT_NOFILE) is %d, and %d are needed for %d interfaces in %d network namespaces: raise LimitNOFILE= of the service, or ulimit -n",
			limit, needed, len(survey.Interfaces), max(1, survey.Netns))
	case limit < needed:
		a.log.Warn("the limit of open files is too low to count all interfaces",
			"RLIMIT_NOFILE", limit, "needed", needed, "interfaces", len(survey.Interfaces), "netns", survey.Netns, "remedy", filesRemedy)
	}
	return nil
}

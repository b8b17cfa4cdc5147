package memory

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/userfaultfd.h: on processors where the kernel can do this, the numbers are these.
const (
	userModeOnly       = 1 // needs no privilege
	uffdAPI            = 0xaa
	uffdioAPI          = 0xc018aa3f
	uffdioRegister     = 0xc020aa00
	uffdModeWP         = 1 << 1
	uffdFeatureWPAsync = 1 << 15
)

// MapSingly has the kernel map only the page of the program's file that is used, instead of the 16 around it: functions that run
// together are not next to each other in the file, and five of six pages would be mapped for nothing. The kernel does so where
// writes to a mapping are watched (without a reader, since Linux 6.7); nothing writes to these.
func MapSingly() error {
	parts, err := programParts()
	if err != nil {
		return err
	}
	// It stays open as long as the process runs: closing it would end the watching.
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	if errno != 0 {
		return fmt.Errorf("opening a userfaultfd: %w", errno)
	}
	api := struct{ api, features, ioctls uint64 }{api: uffdAPI, features: uffdFeatureWPAsync}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioAPI, uintptr(unsafe.Pointer(&api))); errno != 0 {
		unix.Close(int(fd))
		return fmt.Errorf("asking for asynchronous write protection: %w", errno)
	}
	for _, p := range parts {
		r := struct{ start, length, mode, ioctls uint64 }{start: uint64(p.start), length: uint64(p.length()), mode: uffdModeWP}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, uffdioRegister, uintptr(unsafe.Pointer(&r))); errno != 0 {
			unix.Close(int(fd))
			return fmt.Errorf("watching the program's mappings: %w", errno)
		}
	}
	return nil
}

package forward

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolFlags asks a driver for what it does to packets, as bits.
func ethtoolFlags(fd int, iface string) (uint32, error) {
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GFLAGS}
	var req struct { // ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:len(req.name)-1], iface)
	req.data = unsafe.Pointer(&value)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
		return 0, fmt.Errorf("asking %s for its offloads: %w", iface, errno)
	}
	return value.data, nil
}

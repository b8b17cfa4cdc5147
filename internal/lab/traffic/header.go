package traffic

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// withHeader is a net.Dialer's Control: all packets of the socket have this Hop-by-Hop Options
// header, whose first two bytes the kernel completes. None: nothing is done.
func withHeader(header []byte) func(network, address string, c syscall.RawConn) error {
	if header == nil {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		if err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, string(header))
		}); err != nil {
			return err
		}
		if failed != nil {
			return fmt.Errorf("set a Hop-by-Hop Options header of %d bytes (as root): %w", len(header), failed)
		}
		return nil
	}
}

package access

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// socketTable lists the TCP connections over IPv4 of this network namespace.
const socketTable = "/proc/net/tcp"

// peerUser is the user at the other end of a connection over the IPv4 loopback.
func peerUser(c net.Conn) (uid uint32, err error) {
	theirs, ours := endOf(c.RemoteAddr()), endOf(c.LocalAddr())
	if theirs == "" || ours == "" {
		return 0, errors.New("not a connection over IPv4")
	}
	f, err := os.Open(socketTable)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid …
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 7 && fields[1] == theirs && fields[2] == ours {
			n, err := strconv.ParseUint(fields[7], 10, 32)
			return uint32(n), err
		}
	}
	return 0, errors.New("the kernel does not list it")
}

// endOf writes an end as the table does: the address as a number of this machine, in hexadecimal digits.
func endOf(a net.Addr) string {
	end, err := netip.ParseAddrPort(a.String())
	if err != nil || !end.Addr().Unmap().Is4() {
		return ""
	}
	b := end.Addr().Unmap().As4()
	return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(b[:]), end.Port())
}

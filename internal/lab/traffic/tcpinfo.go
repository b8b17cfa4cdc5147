package traffic

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// TCPInfo is what the kernel counted of a connection, at its end (tcp(7)).
type TCPInfo struct {
	SegmentsOut   uint32
	SegmentsIn    uint32
	BytesSent     uint64 // payload, retransmissions included
	BytesAcked    uint64 // payload and, after a handshake, SYN and FIN
	BytesReceived uint64
	Retransmits   uint32 // segments
	MSS           uint32
	RTT           time.Duration // smoothed
	MinRTT        time.Duration
}

// finish ends our side of a connection whose other side has ended or will, waits
// until the kernel is done with it, and reads its counts.
func finish(c *net.TCPConn) (TCPInfo, error) {
	if err := c.CloseWrite(); err != nil {
		return TCPInfo{}, fmt.Errorf("end connection: %w", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return TCPInfo{}, err
	}
	const closed, patience = 7, 5 * time.Second // TCP_CLOSE
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var info *unix.TCPInfo
		var infoErr error
		if err := raw.Control(func(fd uintptr) {
			info, infoErr = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		}); err != nil {
			return TCPInfo{}, err
		}
		if infoErr != nil {
			return TCPInfo{}, fmt.Errorf("read TCP_INFO: %w", infoErr)
		}
		if info.State == closed || time.Now().After(deadline) {
			return TCPInfo{
				SegmentsOut: info.Segs_out, SegmentsIn: info.Segs_in,
				BytesSent: info.Bytes_sent, BytesAcked: info.Bytes_acked, BytesReceived: info.Bytes_received,
				Retransmits: info.Total_retrans, MSS: info.Snd_mss,
				RTT:    time.Duration(info.Rtt) * time.Microsecond,
				MinRTT: time.Duration(info.Min_rtt) * time.Microsecond,
			}, nil
		}
	}
}

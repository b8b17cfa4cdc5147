package e2e

import (
	"encoding/csv"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/test/packet"
)

// udpFrame is a datagram that no stack answers: it is for another host.
func udpFrame(dport int) []byte {
	return packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(4321, uint16(dport)).Payload(100).Bytes()
}

// sendFrames puts a frame on an interface of the calling thread's namespace,
// several times.
func sendFrames(iface string, frame []byte, count int) error {
	return sendEach(iface, slices.Repeat([][]byte{frame}, count))
}

// sendEach waits for the carrier: before, the kernel drops without a word.
func sendEach(iface string, frames [][]byte) error {
	link, err := net.InterfaceByName(iface)
	for deadline := time.Now().Add(time.Minute); err == nil && link.Flags&net.FlagRunning == 0; {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has no carrier", iface)
		}
		time.Sleep(5 * time.Millisecond)
		link, err = net.InterfaceByName(iface)
	}
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, frame := range frames {
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
			return fmt.Errorf("send on %s: %w", iface, err)
		}
	}
	return nil
}

// protocols are the numbers of the protocols that CSV and tables name.
var protocols = map[string]int{"tcp": 6, "udp": 17}

// readCSV reads rows by the names of their columns.
func readCSV(t *testing.T, text string) []map[string]string {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var rows []map[string]string
	for i, line := range lines {
		if i == 0 {
			continue
		}
		row := map[string]string{}
		for j, value := range line {
			row[lines[0][j]] = value
		}
		rows = append(rows, row)
	}
	return rows
}

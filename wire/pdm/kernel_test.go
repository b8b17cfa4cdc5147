//go:build linux

package pdm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// The kernel is the judge of what Insert makes: it delivers every marked packet
// to the application, and drops one that Insert rightly refuses to make.
func TestKernelTakesMarkedPackets(t *testing.T) {
	result := make(chan error)
	go func() {
		// Never unlocked: the thread and its network namespace end together.
		runtime.LockOSThread()
		result <- sendThroughLoopback(t)
	}()
	err := <-result
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs CAP_SYS_ADMIN for a network namespace of its own: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
}

func sendThroughLoopback(t *testing.T) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare network namespace: %w", err)
	}
	receiver, port, err := listenOnLoopback()
	if err != nil {
		return err
	}
	defer unix.Close(receiver)
	raw, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return fmt.Errorf("raw socket: %w", err)
	}
	defer unix.Close(raw)
	send := func(pkt []byte) error {
		return unix.Sendto(raw, pkt, 0, &unix.SockaddrInet6{Addr: loopback})
	}
	eight := append(sevenOptions(), tlv(6))

	for i, c := range []struct {
		name    string
		headers []header
	}{
		{"bare", nil},
		{"hop-by-hop", []header{hopByHop()}},
		{"padding only", []header{dest(padN(6))}},
		{"an option", []header{dest(tlv(4))}},
		{"seven options", []header{dest(sevenOptions()...)}},
		{"hop-by-hop and an option", []header{hopByHop(), dest(tlv(2), padN(4), tlv(0), padN(4))}},
	} {
		body := fmt.Appendf(nil, "packet %d", i)
		plain := loopbackPacket(port, body, c.headers...)
		marked, err := pdm.Insert(plain, sample)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		unmarked, _, err := pdm.Remove(marked)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, pkt := range [][]byte{marked, unmarked} {
			if err := send(pkt); err != nil {
				return fmt.Errorf("%s: send: %w", c.name, err)
			}
			got := make([]byte, 100)
			n, _, err := unix.Recvfrom(receiver, got, 0)
			if err != nil {
				t.Errorf("%s: nothing arrived: %v\n%x", c.name, err, pkt)
			} else if !bytes.Equal(got[:n], body) {
				t.Errorf("%s: received %q, sent %q", c.name, got[:n], body)
			}
		}
	}

	// Nine options: dropped, so that the next packet is the first to arrive.
	if _, err := pdm.Insert(loopbackPacket(port, []byte("nine"), dest(eight...)), sample); !errors.Is(err, ipv6.ErrNoSpace) {
		t.Errorf("a ninth option: %v", err)
	}
	nine := dest(append(eight, append(mark(sample), padN(4)...))...)
	for _, pkt := range [][]byte{loopbackPacket(port, []byte("nine"), nine), loopbackPacket(port, []byte("last"))} {
		if err := send(pkt); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	got := make([]byte, 100)
	n, _, err := unix.Recvfrom(receiver, got, 0)
	if err != nil || string(got[:n]) != "last" {
		t.Errorf("after a packet with nine options: %q, %v", got[:n], err)
	}
	return nil
}

var loopback = [16]byte{15: 1}

// listenOnLoopback sets lo up and returns a UDP socket on ::1.
func listenOnLoopback() (fd int, port uint16, err error) {
	fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, fmt.Errorf("socket: %w", err)
	}
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, 0, err
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		return 0, 0, fmt.Errorf("set lo up: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Addr: loopback}); err != nil {
		return 0, 0, fmt.Errorf("bind to ::1: %w", err)
	}
	deadline := unix.NsecToTimeval(int64(5 * time.Second))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &deadline); err != nil {
		return 0, 0, fmt.Errorf("set receive timeout: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, 0, fmt.Errorf("getsockname: %w", err)
	}
	return fd, uint16(name.(*unix.SockaddrInet6).Port), nil
}

// loopbackPacket is a UDP packet from ::1 to ::1 with a right checksum.
func loopbackPacket(port uint16, body []byte, headers ...header) []byte {
	u := binary.BigEndian.AppendUint16(nil, 40000)
	u = binary.BigEndian.AppendUint16(u, port)
	u = binary.BigEndian.AppendUint16(u, uint16(8+len(body)))
	u = append(append(u, 0, 0), body...)

	// RFC 8200 section 8.1; the two addresses sum to 2.
	sum := uint32(2 + 17 + len(u))
	for i, v := range u {
		sum += uint32(v) << (8 * (1 - i%2))
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	binary.BigEndian.PutUint16(u[6:], ^uint16(sum))

	pkt := packet(append(headers, header{17, u})...)
	copy(pkt[8:], loopback[:])
	copy(pkt[24:], loopback[:])
	return pkt
}

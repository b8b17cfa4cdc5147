package producer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// sockets gets sockets from the agent; programs at egress know these by a mark that only the agent may set.
type sockets struct {
	mu   sync.Mutex
	from *net.UnixConn // nil: the program runs without an agent
}

func newSockets(descriptor int) *sockets {
	s := &sockets{}
	file := os.NewFile(uintptr(descriptor), "sockets")
	if file == nil {
		return s
	}
	defer file.Close()
	if c, err := net.FileConn(file); err == nil {
		s.from, _ = c.(*net.UnixConn)
	}
	return s
}

// control replaces a socket that net.Dialer made, before it is connected.
func (s *sockets) control(network, _ string, c syscall.RawConn) error {
	fd, err := s.get(network)
	if err != nil {
		return fmt.Errorf("get a socket from the agent: %w", err)
	}
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	return errors.Join(c.Control(func(to uintptr) { err = unix.Dup3(fd, int(to), unix.O_CLOEXEC) }), err)
}

// get asks for a socket; -1: there is nobody to ask.
func (s *sockets) get(network string) (fd int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		return -1, nil
	}
	family := []byte{4}
	if strings.HasSuffix(network, "6") {
		family[0] = 6
	}
	if _, err := s.from.Write(family); err != nil {
		return -1, err
	}
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := s.from.ReadMsgUnix(family, rights)
	if err != nil {
		return -1, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return -1, errors.Join(errors.New("no socket came"), err)
	}
	list, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(list) != 1 {
		return -1, errors.Join(errors.New("no socket came"), err)
	}
	unix.CloseOnExec(list[0])
	return list[0], nil
}

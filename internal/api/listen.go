package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socketMode lets root and the group of the socket in.
const socketMode = 0o660

// listenUnix binds the socket. What a dead agent left behind is removed; that of
// a live one is not.
func listenUnix(path, group string) (net.Listener, error) {
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	listener, err := bindUnix(path, gid)
	switch {
	case err == nil:
		return listener, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; run as root, or give a path of your own in api.socket or with --socket", err)
	case errors.As(err, new(syscall.Errno)):
		return nil, fmt.Errorf("%w; choose another path in api.socket or with --socket", err)
	}
	return nil, err
}

// groupID is the number of a group, which may be written as one; -1: the group stays.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if n, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, fmt.Errorf("group of the API socket: %w; make it (groupadd --system %s), or name another in api.group", err, name)
	}
	return strconv.Atoi(g.Gid)
}

func bindUnix(path string, gid int) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the API socket: %w", err)
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	listener, err := closedToOthers.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on the API socket: %w", err)
	}
	if err := os.Chmod(path, socketMode); err != nil {
		listener.Close()
		return nil, fmt.Errorf("set the mode of the API socket: %w", err)
	}
	if err := os.Chown(path, -1, gid); err != nil {
		listener.Close()
		return nil, fmt.Errorf("give the API socket to its group: %w; the agent's user must be in the group of api.group, or root", err)
	}
	return listener, nil
}

// closedToOthers makes the socket's file with the mode that the socket has
// before bind, less the umask: others can't connect in between either.
var closedToOthers = net.ListenConfig{
	Control: func(_, _ string, conn syscall.RawConn) (err error) {
		controlErr := conn.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), socketMode) })
		return errors.Join(controlErr, err)
	},
}

// lockDir keeps two agents that start at the same time from removing each
// other's socket. The lock needs no file of its own.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of the API socket: %w", err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		d.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { d.Close() }, nil
}

// removeStale removes a socket that no one listens on.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the API socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listen on the API socket: %s is there and no socket; choose another path in api.socket or with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		defer conn.Close()
		return fmt.Errorf("listen on the API socket: %s belongs to the running agent with pid %d; stop that one, or give this one a path of its own with --socket", path, listenerPID(conn))
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("ask who is behind the API socket: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the API socket of a dead agent: %w", err)
	}
	return nil
}

// listenerPID is the process that called listen on the other end; 0: not known.
func listenerPID(conn net.Conn) int {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	err = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	if err != nil {
		return 0
	}
	return pid
}

// listenLoopback binds a TCP port that no other host reaches: the API asks for
// no password.
func listenLoopback(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("listen for the API: %w; set api.listen to another port, or stop what has it (ss -ltnp)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w; set api.listen to a port of 127.0.0.1 or [::1]", err)
	}
	if tcp, ok := listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		listener.Close()
		return nil, fmt.Errorf("listen for the API: %s can be reached from outside this host, and the API asks for no password; "+
			"use 127.0.0.1 or [::1], and a proxy that authenticates for other hosts", address)
	}
	return listener, nil
}

package main

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	gate "github.com/waymark-net/waymark/internal/gate/service"
)

// sshVariable has addresses and ports of an SSH connection: those of the client, then
// those of the server.
const sshVariable = "SSH_CONNECTION"

// maxAncestors is how many processes are between a command and sshd at most.
const maxAncestors = 32

// operatorConnections are those over which the user is logged in. Where sudo removed the
// variable, a process that this one descends from has it.
func operatorConnections() (list []gate.Connection) {
	if c, ok := sshConnection(os.Getenv(sshVariable)); ok {
		return []gate.Connection{c}
	}
	for pid, n := os.Getppid(), 0; pid > 1 && n < maxAncestors; pid, n = parentOf(pid), n+1 {
		env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
		if err != nil {
			continue
		}
		for _, one := range bytes.Split(env, []byte{0}) {
			if value, ok := strings.CutPrefix(string(one), sshVariable+"="); ok {
				if c, ok := sshConnection(value); ok {
					return []gate.Connection{c}
				}
			}
		}
	}
	return nil
}

// sshConnection reads the variable.
func sshConnection(value string) (c gate.Connection, ok bool) {
	words := strings.Fields(value)
	if len(words) != 4 {
		return c, false
	}
	for i, end := range []*netip.AddrPort{&c.Remote, &c.Local} {
		addr, err := netip.ParseAddr(words[2*i])
		port, err2 := strconv.ParseUint(words[2*i+1], 10, 16)
		if err != nil || err2 != nil {
			return c, false
		}
		*end = netip.AddrPortFrom(addr, uint16(port))
	}
	return c, true
}

// parentOf is the process that started another; 0: not known.
func parentOf(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ") // behind the name, which may have blanks
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
)

// terminal is a pseudo-terminal of some width: what is written to tty is read
// from the other end.
func terminal(t *testing.T, columns int) (tty, other *os.File) {
	t.Helper()
	other, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	fd := int(other.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	return tty, other
}

// onTerminal is what a command writes to a terminal. The tty is closed only after all of it was read: a read fails with EIO
// when the other end is closed, though what was written last may still be on its way through the kernel's queue.
func onTerminal(t *testing.T, columns int, args ...string) string {
	t.Helper()
	const end = "\x04" // no command writes it
	tty, other := terminal(t, columns)
	defer tty.Close()
	type reading struct {
		text string
		err  error
	}
	read := make(chan reading, 1)
	go func() {
		text, err := bufio.NewReader(other).ReadString(end[0])
		read <- reading{text, err}
	}()
	if code := execute(args, strings.NewReader(""), tty, io.Discard); code != command.ExitOK {
		t.Errorf("%v: exit code %d", args, code)
	}
	if _, err := io.WriteString(tty, end); err != nil {
		t.Fatal(err)
	}
	got := <-read
	if got.err != nil {
		t.Fatalf("%v: after %q: %v", args, got.text, got.err)
	}
	return strings.ReplaceAll(strings.TrimSuffix(got.text, end), "\r\n", "\n")
}

// Tables fit the terminal: columns that say least are left out, addresses are
// shortened, and the verdict stays.
func TestTablesFitTheTerminal(t *testing.T) {
	history := store.New(store.Default())
	fillInterval(history, 0)
	fillMarked(history)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	server := api.New(api.Config{Socket: socket}, api.Deps{Origin: flow.Origin{Host: "alpha", Sampling: 1}, History: history})
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for _, line := range []string{
		"delays", "delays --by peer", "delays --by peer/48", "delays --by peer_service", "delays --by proto,local_service",
		"delays --by flow", "flows", "flows --by conversation",
	} {
		for _, columns := range []int{80, 100, 132} {
			got := onTerminal(t, columns, append(strings.Fields(line), "--socket", socket)...)
			lines := strings.Split(strings.TrimSpace(got), "\n")
			for _, l := range lines {
				if runewidth.StringWidth(l) > columns {
					t.Errorf("%s: %d columns do not fit %d:\n%s", line, runewidth.StringWidth(l), columns, got)
					break
				}
			}
			if len(lines) < 3 {
				t.Errorf("%s: only %q", line, got)
			}
			if strings.HasPrefix(line, "delays") {
				for _, title := range []string{"SERVER", "NETWORK", "VERDICT"} {
					if !strings.Contains(lines[0], title) {
						t.Errorf("%s in %d columns lacks %s:\n%s", line, columns, title, got)
					}
				}
			}
		}
	}
	if wide := onTerminal(t, 80, "delays", "--wide", "--socket", socket); !strings.Contains(wide, "P90") {
		t.Errorf("--wide leaves out columns:\n%s", wide)
	}
}

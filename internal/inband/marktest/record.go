package marktest

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
)

// Record captures what a host's first interface sees, until stop.
func Record(t testing.TB, h *lab.Host) (path string, stop func()) {
	t.Helper()
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("tcpdump is not installed: see scripts/setup")
	}
	path = filepath.Join(t.TempDir(), "sent.pcap")
	cmd := exec.Command("tcpdump", "-i", h.Interfaces[0].Name, "-w", path, "-U", "--immediate-mode", "-B", "32768", "-Z", "root", "ip6")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "listening on") {
	}
	var rest strings.Builder
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&rest, said) })
	return path, func() {
		t.Helper()
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			t.Fatalf("tcpdump: %v: %s", err, rest.String())
		}
		if !strings.Contains(rest.String(), "\n0 packets dropped by kernel") {
			t.Fatalf("tcpdump did not capture all: %s", rest.String())
		}
	}
}

package marktest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// Record captures what a host's first interface sees, until stop.
func Record(t testing.TB, h *lab.Host) (path string, stop func()) {
	t.Helper()
	if _, err := exec.LookPath("tcpdump"); err != nil {
		t.Skip("tcpdump is not installed: see scripts/setup")
	}
	path = filepath.Join(t.TempDir(), "sent.pcap")
	cmd := exec.Command("tcpdump", "-i", h.Interfaces[0].Name, "-w", path, "-U", "--immediate-mode", "-B", "32768", "-Z", "root", "ip6")
	var said await.Text
	cmd.Stderr = &said
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	await.True(t, "tcpdump listens", func() bool { return strings.Contains(said.String(), "listening on") })
	return path, func() {
		t.Helper()
		// When it ends, what the kernel has for it and it has not read yet is lost, and counted by nobody.
		await.Success(t, func() error { return caughtUp(cmd.Process, &said) })
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("tcpdump: %v: %s", err, said.String())
		}
		if !strings.Contains(said.String(), "\n0 packets dropped by kernel") {
			t.Fatalf("tcpdump did not capture all: %s", said.String())
		}
	}
}

// counted is what tcpdump says when SIGUSR1 comes.
var counted = regexp.MustCompile(`(\d+) packets? captured, (\d+) packets? received by filter, \d+ packets? dropped by kernel`)

// caughtUp asks tcpdump whether it has captured all packets that it received.
func caughtUp(tcpdump *os.Process, said *await.Text) error {
	before := len(counted.FindAllString(said.String(), -1))
	if err := tcpdump.Signal(unix.SIGUSR1); err != nil {
		return err
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		all := counted.FindAllStringSubmatch(said.String(), -1)
		if len(all) == before {
			continue
		}
		if last := all[len(all)-1]; last[1] != last[2] {
			return fmt.Errorf("tcpdump has captured %s of %s packets", last[1], last[2])
		}
		return nil
	}
	return fmt.Errorf("tcpdump does not report: %s", said)
}

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestDemo: the demonstration holds itself against the truth, and fails where it
// is off; it leaves no namespace behind.
func TestDemo(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed: apt-get install iperf3")
	}
	prefix := fmt.Sprintf("wmdemo%d-", os.Getpid())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "lab", "demo", "--prefix", prefix)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &out, &log)
	}
	for _, want := range []string{
		"100.00 %",            // coverage
		"server 4",            // the verdict: server 41.0ms of 61.2ms
		"tcp, time at the se", // beside the truth
		"udp, round trip on ", // likewise
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, &out)
		}
	}
	names, err := os.ReadDir("/run/netns")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n.Name(), prefix) {
			t.Errorf("namespace %s is left", n.Name())
		}
	}
}

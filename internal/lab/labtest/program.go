package labtest

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// Begin starts a program on a host, which ends with the test, and waits until it says that it is ready.
func Begin(t testing.TB, h *lab.Host, ready string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	out := &await.Text{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := h.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("%v: %s", argv, out)
		}
	})
	await.True(t, argv[0]+" is ready", func() bool { return strings.Contains(out.String(), ready) })
}

// Transferred is what iperf3 reports.
type Transferred struct {
	Received    int64 // bytes
	Retransmits int
	BPS         float64
}

// Iperf has iperf3 send 80 Mbit/s over two connections for a second, to a host that has an address.
func Iperf(t testing.TB, from, to *lab.Host, at netip.AddrPort, more ...string) Transferred {
	t.Helper()
	port := fmt.Sprint(at.Port())
	Begin(t, to, "listening", "iperf3", "-s", "-1", "--forceflush", "-p", port)
	out, err := from.Run(t.Context(), append([]string{"iperf3", "-c", at.Addr().String(), "-p", port, "-t", "1", "-b", "40M", "-P", "2", "-J"}, more...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var report struct {
		End struct {
			Sent struct {
				Retransmits int `json:"retransmits"`
			} `json:"sum_sent"`
			Received struct {
				Bytes int64   `json:"bytes"`
				BPS   float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	end := report.End
	return Transferred{end.Received.Bytes, end.Sent.Retransmits, end.Received.BPS}
}

// IperfBytes is what arrives at least of a second of Iperf, on a machine that does nothing else for most of it.
const IperfBytes = 4_000_000

package lab_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
)

// TestKilledHalfWay kills an Up at moments spread over its whole run. Down must
// leave nothing each time, and Up must work again.
func TestKilledHalfWay(t *testing.T) {
	for _, topology := range lab.Topologies() {
		t.Run(topology, func(t *testing.T) {
			needRoot(t)
			p := prefix(t)
			out, err := builder(t, topology, p).Output()
			if err != nil {
				t.Fatal(err)
			}
			whole, err := time.ParseDuration(strings.TrimSpace(string(out)))
			if err != nil {
				t.Fatal(err)
			}
			if err := lab.Down(p); err != nil {
				t.Fatal(err)
			}
			const moments = 16
			unfinished := 0
			// How long a builder takes differs: some end before they are killed.
			for i := 0; i < moments || unfinished < moments/4 && i < 8*moments; i++ {
				kill(t, builder(t, topology, p), p, whole*time.Duration(i%moments)/moments)
				if _, err := lab.Open(p); err != nil && !errors.Is(err, lab.ErrNotUp) {
					unfinished++
				}
				if err := lab.Down(p); err != nil {
					t.Fatal(err)
				}
				for what := range traces(t, p) {
					if strings.Contains(what, p) {
						t.Errorf("killed after %d/%d: %s is left", i%moments+1, moments, what)
					}
				}
			}
			if unfinished < moments/4 {
				t.Error("hardly any builder was killed at work: the test shows nothing")
			}
			l, err := lab.Up(lab.Config{Topology: topology, Prefix: p})
			if err != nil {
				t.Fatal(err)
			}
			if topology != "path" { // its relay is not running
				exchange(t, l.Host("alpha"), l.Host("beta"), l.Host("beta").Addr4())
			}
		})
	}
}

// kill starts a builder and kills it some time after it has begun.
func kill(t *testing.T, cmd *exec.Cmd, prefix string, after time.Duration) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Microsecond) {
		if _, err := lab.Open(prefix); !errors.Is(err, lab.ErrNotUp) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the builder does not begin")
		}
	}
	timer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Wait()
}

func builder(t *testing.T, topology, prefix string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperEnv+"="+topology+" "+prefix)
	return cmd
}

// A name without a namespace is what a builder leaves that was killed between
// making the file and mounting on it; a state file cut short likewise.
func TestDownAfterTheNarrowestCrash(t *testing.T) {
	needRoot(t)
	p := prefix(t)
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/run/netns/"+p+"porthos", nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("/run/waymark/lab", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/run/waymark/lab/"+p+".json", []byte(`{"prefix":"`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Open(p); err == nil {
		t.Error("a broken lab was opened")
	}
	if err := lab.Down(p); err != nil {
		t.Fatal(err)
	}
}

func nobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

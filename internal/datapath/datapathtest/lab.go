package datapathtest

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
)

// labs numbers the labs of this process.
var labs atomic.Uint32

// NewLab makes a lab that goes with the test.
func NewLab(t testing.TB, cfg lab.Config) *lab.Lab {
	t.Helper()
	cfg.Prefix = fmt.Sprintf("wmpt%d-%d-", os.Getpid(), labs.Add(1))
	l, err := lab.Up(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	})
	// No more segments are on their way than a queue of veth holds (256): what is
	// sent again was lost for another reason.
	for _, h := range l.Hosts() {
		if err := h.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/tcp_rmem", []byte("4096 65536 131072"), 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

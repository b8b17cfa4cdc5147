package datapathtest

import (
	"os"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
)

// NewLab makes a lab that goes with the test.
func NewLab(t testing.TB, cfg lab.Config) *lab.Lab {
	t.Helper()
	l := labtest.New(t, cfg)
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

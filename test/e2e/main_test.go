package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/test/built"
)

// program is the path of the program under test.
var program string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	// Agents and what they are asked mostly wait, for intervals and for each other.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		if err := f.Value.Set(strconv.Itoa(2 * runtime.NumCPU())); err != nil {
			return 1, err
		}
	}
	if os.Geteuid() != 0 {
		return 1, fmt.Errorf("labs, programs and other users' rights take root: run as root")
	}
	// A variable of the developer's shell would configure every agent, and agents collect garbage as they do everywhere, but on
	// an emulated machine (test/vm), where it takes a tenth of the time.
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "WAYMARK_") || name == "NOTIFY_SOCKET" || name == "GOGC" && os.Getenv(name) != "off" {
			os.Unsetenv(name)
		}
	}
	dir, err := os.MkdirTemp("", "waymark-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	// Other users run it, too.
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	if program, err = built.In(dir); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

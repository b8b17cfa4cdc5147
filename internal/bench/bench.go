// Package bench measures what the probe costs: its programs alone, by
// BPF_PROG_TEST_RUN (Datapath), and whole probes side by side on a veth
// pair (Probes). Input: a Config. Output: a report, which is written as JSON,
// as a table and as plots. Command waymark-bench calls it.
//
// Everything that is compared is measured in the same run, in turns: on a
// machine that others use too, only such ratios mean something.
package bench

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/obs"
)

// Config is what both benchmarks have in common.
type Config struct {
	Quick    bool         // fewer flows and rounds
	Progress func(string) // receives what is being measured
}

// Default measures everything and tells nobody.
func Default() Config {
	return Config{Progress: func(string) {}}
}

// Run tells of a run: what was measured, where and when.
type Run struct {
	Name    string    `json:"name"`
	Quick   bool      `json:"quick"`
	Version string    `json:"version"`
	Machine Machine   `json:"machine"`
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"`
}

// Machine is where a benchmark ran.
type Machine struct {
	Kernel     string  `json:"kernel"`
	Processor  string  `json:"processor"`
	Processors int     `json:"processors"`
	MemoryMiB  uint64  `json:"memory_mib"`
	Go         string  `json:"go"`
	Load       float64 `json:"load"` // average of the minute before the run: who else was there
}

func begin(name string, cfg Config) (Run, error) {
	m, err := machine()
	return Run{Name: name, Quick: cfg.Quick, Version: obs.ReadBuild().Version, Machine: m, Started: time.Now()}, err
}

func (r *Run) end() { r.Seconds = time.Since(r.Started).Seconds() }

func machine() (Machine, error) {
	m := Machine{Processors: runtime.NumCPU(), Go: runtime.Version(), Processor: runtime.GOARCH}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return m, fmt.Errorf("reading the kernel's version: %w", err)
	}
	m.Kernel = unix.ByteSliceToString(uts.Release[:])
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return m, fmt.Errorf("reading the size of memory: %w", err)
	}
	m.MemoryMiB = uint64(info.Totalram) * uint64(info.Unit) >> 20
	m.Load = float64(info.Loads[0]) / (1 << 16)
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, fmt.Errorf("reading the processor's name: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.Processor = strings.TrimSpace(value)
			break
		}
	}
	return m, nil
}

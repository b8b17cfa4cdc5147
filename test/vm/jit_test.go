package vm

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// BenchmarkInterpreter: on Debian's kernel, which has an interpreter for BPF, programs at XDP drop all that is sent, compiled
// and interpreted. With VM_BENCH=FOLDER it measures longer, and writes jit.md and jit.json there.
func BenchmarkInterpreter(b *testing.B) {
	out := os.Getenv("VM_BENCH")
	args := []string{"/bin/waymark-bench", "jit", "--out", "/tmp"}
	if out == "" {
		args = append(args, "--quick")
	}
	m := Machine{
		Kernel: olderKernel(), CPUs: 2, Timeout: 8 * time.Minute,
		Modules: []string{"veth", "iptable_raw", "xt_tcpudp", "sch_ingress", "cls_bpf"},
		Files:   map[string]string{"/bin/waymark-bench": Build(b, "../../cmd/waymark-bench")},
		Cmds:    []Cmd{{Args: args}, {Args: []string{"/bin/cat", "/tmp/jit.json"}}},
	}
	for _, tool := range []string{"cat", "env", "iptables-legacy"} {
		addTool(b, m.Files, tool)
	}
	for _, extension := range []string{"libxt_udp.so", "libxt_standard.so"} {
		found, _ := filepath.Glob("/usr/lib/*/xtables/" + extension)
		for _, file := range found {
			m.Files[file] = file
		}
	}
	r := Run(b, m)
	for _, one := range r.Results {
		if one.ExitCode != 0 {
			b.Fatalf("ended with %d:\n%s%s", one.ExitCode, one.Stdout, one.Stderr)
		}
	}
	var report struct {
		Measured []struct {
			Way           string
			Sent, Dropped uint64
			Counts        bool
		}
	}
	if err := json.Unmarshal([]byte(r.Results[1].Stdout), &report); err != nil {
		b.Fatal(err)
	}
	if len(report.Measured) < 6 {
		b.Errorf("%+v", report)
	}
	for _, c := range report.Measured {
		if c.Counts && c.Dropped != c.Sent {
			b.Errorf("%s: %d of %d packets", c.Way, c.Dropped, c.Sent)
		}
	}
	b.Logf("%s", r.Results[0].Stdout)
	if out == "" {
		return
	}
	for i, name := range []string{"jit.md", "jit.json"} {
		if err := os.WriteFile(filepath.Join(out, name), []byte(r.Results[i].Stdout), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// addTool adds a program of the host, with the libraries that it needs; what is not installed is left out.
func addTool(t testing.TB, files map[string]string, name string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Logf("%s is not installed", name)
		return
	}
	text, err := exec.Command("ldd", path).Output()
	if err != nil {
		t.Fatal(fmt.Errorf("asking for the libraries of %s: %w", name, err))
	}
	all := map[string]string{"/bin/" + name: path}
	for _, m := range library.FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[1]
	}
	maps.Copy(files, all)
}

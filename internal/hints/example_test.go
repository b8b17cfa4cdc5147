package hints

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/await"
)

// TestExample compiles the program of docs/how-to/hints.md, and runs both of its forms.
func TestExample(t *testing.T) {
	needBinding(t)
	spec := compileExample(t)
	for _, c := range []struct {
		program string
		offered Rate // of the hash
	}{
		{"count_bound", Rate{Present: 3}},
		{"count_unbound", Rate{Absent: 3}},
	} {
		v := datapathtest.NewVeth(t)
		one := spec.Copy()
		one.Programs = map[string]*ebpf.ProgramSpec{c.program: one.Programs[c.program]}
		if c.program == "count_bound" {
			one.Programs[c.program].Ifindex = uint32(v.To)
			one.Programs[c.program].Flags |= unix.BPF_F_XDP_DEV_BOUND_ONLY
		}
		var coll *ebpf.Collection
		if err := v.Do(func() (err error) {
			if coll, err = ebpf.NewCollection(one); err != nil {
				return err
			}
			t.Cleanup(coll.Close)
			l, err := link.AttachXDP(link.XDPOptions{Program: coll.Programs[c.program], Interface: v.To, Flags: link.XDPDriverMode})
			if err == nil {
				t.Cleanup(func() { l.Close() })
			}
			return err
		}); err != nil {
			t.Fatalf("%s: %+v", c.program, err)
		}
		for range 3 {
			v.Send(t, frame)
		}
		await.True(t, "a bucket with three packets", func() bool { return fullest(t, coll.Maps["packets"]) == 3 })
		if rates, err := ReadCounts(coll.Maps["hints_counts"], 0); err != nil || rates[Hash] != c.offered || rates[Time] != (Rate{}) {
			t.Errorf("%s: %+v, %v", c.program, rates, err)
		}
	}
}

func fullest(t *testing.T, m *ebpf.Map) (most uint64) {
	t.Helper()
	var bucket uint32
	var perCPU []uint64
	all := m.Iterate()
	for all.Next(&bucket, &perCPU) {
		var sum uint64
		for _, n := range perCPU {
			sum += n
		}
		most = max(most, sum)
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return most
}

// compileExample does what the page says.
func compileExample(t *testing.T) *ebpf.CollectionSpec {
	t.Helper()
	const root = "../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/how-to/hints.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```c\n")
	source, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatal("the page has no program")
	}
	dir := t.TempDir()
	file, object := filepath.Join(dir, "count.bpf.c"), filepath.Join(dir, "count.bpf.o")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("clang-19", "-O2", "-g", "-target", "bpf", "-Wall", "-Werror", "-mcpu=v3", "-I", filepath.Join(root, "bpf"),
		"-I/usr/include/x86_64-linux-gnu", "-I/usr/include/aarch64-linux-gnu", "-c", file, "-o", object)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	content, err := os.ReadFile(object)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

package memory

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"text/template"
)

// mappedFiles is how much of mapped files is in memory, in kB.
func mappedFiles(t *testing.T) (kB int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(status, []byte("RssFile:"))
	if _, err := fmt.Sscan(string(rest), &kB); err != nil {
		t.Fatal(err)
	}
	return kB
}

// A program whose pages were released goes on, with fewer of them.
func TestReleaseProgram(t *testing.T) {
	exe, err := os.ReadFile("/proc/self/exe") // all of it is in the page cache now
	if err != nil || len(exe) == 0 {
		t.Fatal(err)
	}
	before := mappedFiles(t)
	if err := ReleaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := mappedFiles(t); after >= before {
		t.Errorf("%d kB of files are resident, before %d", after, before)
	} else {
		t.Logf("%d kB of files are resident, before %d", after, before)
	}
}

// With pages mapped one by one, the same work has fewer of them in memory.
func TestMapSingly(t *testing.T) {
	if _, err := os.ReadFile("/proc/self/exe"); err != nil { // all of it is in the page cache now
		t.Fatal(err)
	}
	work := func() int {
		if err := ReleaseProgram(); err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := template.Must(template.New("").Parse("{{range .}}{{printf \"%x\" .}}{{end}}")).Execute(&text, []int{1, 2}); err != nil || text.String() != "12" {
			t.Fatal(text.String(), err)
		}
		return mappedFiles(t)
	}
	many := work()
	if err := MapSingly(); err != nil {
		t.Skipf("the kernel (before Linux 6.7) or what confines this test refuses: %v", err)
	}
	if few := work(); few > many*2/3 {
		t.Errorf("%d kB of files are resident after the work, %d before pages were mapped one by one", few, many)
	} else {
		t.Logf("%d kB of files are resident after the work, %d before pages were mapped one by one", few, many)
	}
}

package memory

import (
	"bytes"
	"fmt"
	"os"
	"testing"
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

package top

import (
	"bytes"
	"os"
	"testing"

	"github.com/waymark-net/waymark/internal/term/termtest"
	"github.com/waymark-net/waymark/test/golden"
)

// TestPicture: the picture in the documents is the screen that the other tests check.
func TestPicture(t *testing.T) {
	const file = "../../docs/images/top.svg"
	screen, err := os.ReadFile("testdata/wide.screen")
	if err != nil {
		t.Fatal(err)
	}
	want := termtest.Picture(string(screen), func(line int, _ string) bool { return line == 0 || line == 2 })
	if *golden.Update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from testdata/wide.screen; -update writes it: %v", file, err)
	}
}

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/waymark-net/waymark/internal/term/termtest"
	"github.com/waymark-net/waymark/test/golden"
)

// TestPicture: the picture of delays in the documents is what the script tests check.
func TestPicture(t *testing.T) {
	const file = "../../docs/images/delays.svg"
	archive, err := txtar.ParseFile("testdata/script/delays.txtar")
	if err != nil {
		t.Fatal(err)
	}
	screen := "$ waymark delays --by peer/48 --sort network\n"
	for _, f := range archive.Files {
		if f.Name == "peers.txt" {
			screen += string(f.Data)
		}
	}
	want := termtest.Picture(screen, func(_ int, text string) bool { return strings.HasPrefix(text, "PEER ") })
	if *golden.Update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s differs from testdata/script/delays.txtar; -update writes it: %v", file, err)
	}
}

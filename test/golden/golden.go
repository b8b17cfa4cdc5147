// Package golden compares what a test got with a file that is in the repository. With -update the files are written
// instead. Only tests call it.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update of tests that import this package.
var Update = flag.Bool("update", false, "write the golden files")

// Check compares a text with a file, by default byte for byte.
func Check(t testing.TB, path, got string, opts ...cmp.Option) {
	t.Helper()
	if *Update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got, opts...); diff != "" {
		t.Errorf("%s differs (-want +got); -update writes it:\n%s", path, diff)
	}
}

// Command waymark-analyze is the analyzer, which keeps the records of many hosts. Users run it as waymark analyze.
// Input: what follows that. Output: as of waymark.
package main

import (
	"os"

	"github.com/waymark-net/waymark/internal/analyze/verbs"
)

func main() {
	os.Exit(verbs.Execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

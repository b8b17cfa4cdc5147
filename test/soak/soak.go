// Package soak sets how often a test repeats what it shows: part of it in `make test`, which contributors run many
// times a day, and all of it in `make soak`. Only tests call it.
package soak

import "os"

// Whole reports whether tests run at full length (SOAK=1).
func Whole() bool { return os.Getenv("SOAK") == "1" }

// Times is a number of repetitions: part of them, or all.
func Times(part, whole int) int {
	if Whole() {
		return whole
	}
	return part
}

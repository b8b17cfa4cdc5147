package main

import (
	"os"
	"runtime/debug"

	"github.com/waymark-net/waymark/internal/memory"
)

// limitMemory sets the Go heap's soft limit to half of what the control group
// allows, unless GOMEMLIMIT is set: collecting more often is better than being
// killed. The other half is for maps and rings in the kernel, which count, too.
// It returns the limit in octets, 0 for none.
func limitMemory() (int64, error) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return 0, nil
	}
	group, err := memory.Group()
	if err != nil || group == 0 {
		return 0, err
	}
	limit := int64(group / 2)
	debug.SetMemoryLimit(limit)
	return limit, nil
}

package agent

import (
	"slices"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Examined is what the agent found of its host when it started, with all its privileges.
type Examined struct {
	Checks []kernel.Check `json:"checks"`
}

// examine asks the kernel once, before privileges are dropped; most of it is known by then.
func (a *Agent) examine() {
	checks := kernel.Examine()
	a.examined.Store(&checks)
}

// doctorPage answers what waymark doctor would have found then.
func (a *Agent) doctorPage() api.Page {
	return api.Page{Path: api.DoctorPath, Get: func() (any, error) {
		checks := a.examined.Load()
		if checks == nil {
			return Examined{Checks: []kernel.Check{}}, nil
		}
		return Examined{Checks: slices.Clone(*checks)}, nil
	}}
}

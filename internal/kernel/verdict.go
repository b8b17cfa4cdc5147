package kernel

import (
	"fmt"
	"strings"
)

// Verdict is what the checks mean as a whole.
type Verdict struct {
	State State  `json:"state"` // the worst of all checks
	Text  string `json:"text"`  // what works, and what to do
}

// Judge sums up checks. start is the command line that starts the agent here.
func Judge(checks []Check, start string) Verdict {
	by := map[State][]Check{}
	for _, c := range checks {
		by[c.State] = append(by[c.State], c)
	}
	switch {
	case len(by[StateMissing]) > 0:
		return Verdict{StateMissing, cannot(by[StateMissing], start, checks)}
	case len(by[StateUnknown]) > 0:
		return Verdict{StateUnknown, "unknown: needs root. Run: sudo waymark doctor"}
	case len(by[StateDegraded]) > 0:
		return Verdict{StateDegraded, fmt.Sprintf("the eBPF probe works here, with less than everything: %s. Start it with: %s", names(by[StateDegraded]), start)}
	}
	return Verdict{StateOK, "everything works here. Start the agent with: " + start}
}

// cannot says what is missing and what can be done without it.
func cannot(missing []Check, start string, all []Check) string {
	text := fmt.Sprintf("the eBPF probe cannot run here: %s. %s", names(missing), upper(missing[0].Remedy))
	for _, c := range all {
		if c.Name == "cap_net_raw" && c.State == StateOK {
			text += fmt.Sprintf(". The AF_PACKET probe can run: %s --probe afpacket", start)
		}
	}
	return text
}

func names(checks []Check) string {
	list := make([]string, len(checks))
	for i, c := range checks {
		list[i] = c.Name
	}
	return strings.Join(list, ", ")
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

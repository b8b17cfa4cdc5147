package analyze

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/internal/store/disk"
	"github.com/waymark-net/waymark/internal/term"
)

// deviceMark is a file among the records of a host that has no agent.
const deviceMark = "device"

// deviceHost keeps the intervals of a device without an agent.
type deviceHost struct {
	a *Analyzer
	h *host
}

func (a *Analyzer) openDevice(name string) (device.Keeper, error) {
	h, refused := a.host(name)
	if refused != nil {
		return nil, &refused.Error
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.agent || h.state.Version != "" {
		return nil, fmt.Errorf("an agent sends, or sent, as %s: give the device another name in analyze.devices", name)
	}
	if !h.device {
		if err := os.WriteFile(filepath.Join(a.cfg.Path, "hosts", name, deviceMark), nil, 0o640); err != nil {
			return nil, fmt.Errorf("mark %s as a device: %w", name, err)
		}
		h.device = true
	}
	return deviceHost{a, h}, nil
}

func (h *host) isDevice() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.device
}

// Allow implements device.Keeper.
func (d deviceHost) Allow(bytes int) bool {
	d.h.mu.Lock()
	defer d.h.mu.Unlock()
	return d.h.bucket.take(float64(bytes), float64(d.a.cfg.Rate), time.Now()) == 0
}

// Keep implements device.Keeper. What it returned without an error is on disk.
func (d deviceHost) Keep(e *store.Ended, boot, sequence uint64, heard device.Heard) error {
	h := d.h
	h.keeping.Lock()
	defer h.keeping.Unlock()
	_, err := h.disk.Keep(e, disk.Identity{Boot: boot, Sequence: sequence})
	if err == nil {
		err = h.disk.Sync()
	}
	h.mu.Lock()
	h.state.Address, h.state.ClockOffset = heard.Address, heard.Offset
	h.clockProblem()
	if err != nil {
		h.is("refused", "its records are lost: "+err.Error()+"; "+remedyOf(err))
	} else {
		h.isNot("refused")
	}
	h.mu.Unlock()
	if err != nil {
		return err
	}
	h.note(boot, e.Head(), int(heard.Bytes))
	h.tend(d.a.clock())
	d.a.live.add(h.name, *e)
	return nil
}

// losses are reasons for which flows are missing, with their remedies.
var losses = map[string]string{
	"malformed":    "datagrams were malformed: compare a capture with what tshark reads of it",
	"no_template":  "sets of records were lost, because their template did not come: have the device send templates more often",
	"templates":    "templates were beyond the bounds",
	"device_drops": "samples were dropped by the device: have it sample fewer packets",
	"rate":         "datagrams were dropped: set analyze.rate to more",
	"not_kept":     "records were lost, because the disk did not take them",
	"interfaces":   "records are of more interfaces than are kept by name",
}

// deviceProblems say what is missing of a device, and why; nil: it has not sent since the start.
func deviceProblems(d *state.Device, age time.Duration) (problems []string) {
	switch {
	case d == nil:
		return []string{"it has sent nothing since the analyzer started: see the configuration of the device"}
	case age > silent:
		problems = append(problems, "it has sent nothing for "+term.Duration(age.Round(time.Second))+": see the configuration of the device")
	}
	for unit, n := range d.Lost {
		problems = append(problems, fmt.Sprintf("%d %s were lost on the way, by their sequence numbers", n, unit))
	}
	for why, n := range d.Dropped {
		if text := losses[why]; text != "" {
			problems = append(problems, fmt.Sprintf("%d %s", n, text))
		}
	}
	if d.Summed > 0 {
		problems = append(problems, fmt.Sprintf("%d flows were too many to keep, and are only in sums (unattributed): have the device sample, or send from fewer interfaces", d.Summed))
	}
	if slices.Contains(d.Protocols, "sflow") && len(d.Protocols) > 1 {
		problems = append(problems, "it sends flows by "+strings.Join(d.Protocols, " and ")+": their packets count twice")
	}
	slices.Sort(problems)
	return problems
}

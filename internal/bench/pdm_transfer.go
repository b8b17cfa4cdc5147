package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/inband/pdm"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/lab"
)

// PDMTransfer holds TCP transfers side by side.
type PDMTransfer struct {
	Rounds  int            `json:"rounds"`
	Every   int            `json:"every"`   // in one of so many rounds single packets are sent, too
	Seconds float64        `json:"seconds"` // of each transfer
	MTU     int            `json:"mtu"`
	Modes   []TransferCost `json:"modes"`
	Absent  []AbsentTool   `json:"absent"`
}

// TransferCost is what transfers of one mode did. The agent is there in each.
type TransferCost struct {
	Mode        string  `json:"mode"`
	Rate        Spread  `json:"gbit_per_s"`         // of payload, as received
	Ratio       Spread  `json:"ratio"`              // to unmarked, in the same round
	RatioSure   Range   `json:"ratio_confidence"`   // of its median
	Retransmits Spread  `json:"retransmits"`        // segments of a transfer
	More        Spread  `json:"more_retransmits"`   // than unmarked, in the same round
	Processor   Spread  `json:"processor_s_per_gb"` // time of sender and receiver for 10⁹ bytes
	Work        Spread  `json:"processor_ratio"`    // to unmarked, in the same round
	WorkSure    Range   `json:"processor_ratio_confidence"`
	Marked      uint64  `json:"marked"`   // packets of all rounds; a burst is one
	Agent       float64 `json:"agent_ms"` // processor time of the agent during a transfer, on average
}

// Modes of a transfer.
const (
	modeUnmarked = "unmarked"
	modeBurst    = "burst"       // as many marks in a second of sending as the defaults allow
	modeEvery    = "every-burst" // no limit
	modeSingle   = "no-bursts"   // unmarked, but sent as packet mode has to have it
	modePacket   = "packet"      // no limit
)

// sentAlike are the modes that take turns: what still waits when a turn is over takes from
// the next, so bursts and single packets stay apart.
var sentAlike = [][]string{{modeUnmarked, modeBurst, modeEvery}, {modeSingle, modePacket}}

// transferConfig is the PDM configuration of the modes that mark. A connection sends in its turns
// only, so with the whole limit it would have marks of several seconds for each second of sending.
var transferConfig = map[string]string{
	modeBurst:  fmt.Sprintf("mode: burst, marks_per_second: %d", int(pdm.Default().MarksPerSecond)/len(sentAlike[0])),
	modeEvery:  "mode: burst, marks_per_second: 0",
	modePacket: "mode: packet, marks_per_second: 0",
}

// lane of transfers: two hosts, and an agent on both.
type transferLane struct {
	mode   string
	lab    *lab.Lab
	agent  *process
	client *api.Client
	runs   []transferRun
}

// transferRun is what iperf3 tells, which is not ours.
type transferRun struct {
	round                        int
	rate, retransmits, processor float64
}

// transfers says how many there are, and how long each takes. Each connection is some percent faster or
// slower than another for as long as it lasts: many short rounds tell more than few long ones. Single packets
// differ from bursts by factors, which few rounds show.
func (cfg Config) transfers() PDMTransfer {
	if cfg.Quick {
		return PDMTransfer{Rounds: 5, Every: 1, Seconds: 1, MTU: lab.Default().MTU}
	}
	return PDMTransfer{Rounds: 45, Every: 9, Seconds: 1, MTU: lab.Default().MTU}
}

func measureTransfers(ctx context.Context, t PDMTransfer, progress func(string), self string) (_ PDMTransfer, err error) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Absent = []AbsentTool{{"transfers", "iperf3 is not installed"}}
		return t, nil
	}
	dir, remove, err := temporaryFolder()
	if err != nil {
		return t, err
	}
	defer remove()
	var lanes []*transferLane
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.close())
		}
	}()
	for _, mode := range slices.Concat(sentAlike...) {
		l, err := newTransferLane(ctx, mode, self, dir)
		if err != nil {
			return t, fmt.Errorf("%s: %w", mode, err)
		}
		lanes = append(lanes, l)
	}
	for round := range t.Rounds + 1 {
		progress(fmt.Sprintf("transfers: round %d of %d", round, t.Rounds))
		rest := lanes
		for i, modes := range sentAlike {
			turns := rest[:len(modes)]
			rest = rest[len(modes):]
			if i > 0 && round%t.Every != 0 {
				continue
			}
			runs, err := transferInTurns(ctx, turns, time.Duration(t.Seconds*float64(time.Second)))
			if err != nil {
				return t, err
			}
			for i, l := range turns {
				runs[i].round = round
				if round > 0 { // the first warms up
					l.runs = append(l.runs, runs[i])
				}
			}
		}
	}
	for _, l := range lanes {
		cost, err := l.cost(ctx, lanes[0])
		if err != nil {
			return t, fmt.Errorf("%s: %w", l.mode, err)
		}
		t.Modes = append(t.Modes, cost)
	}
	return t, nil
}

// marks reports whether packets of this lane are marked.
func (l *transferLane) marks() bool { return transferConfig[l.mode] != "" }

// keepWindow has TCP go on after a pause as it was before.
func keepWindow(hosts []*lab.Host) error {
	for _, h := range hosts {
		if err := h.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv4/tcp_slow_start_after_idle", []byte("0"), 0)
		}); err != nil {
			return fmt.Errorf("on %s: %w", h.Name, err)
		}
	}
	return nil
}

// endBursts has TCP hand over single segments, as the agent does in packet mode.
func endBursts(hosts []*lab.Host) error {
	for _, h := range hosts {
		err := h.Do(func() error {
			link, err := netlink.LinkByName(h.Interfaces[0].Name)
			if err != nil {
				return err
			}
			return netlink.LinkSetGSOMaxSegs(link, 1)
		})
		if err != nil {
			return fmt.Errorf("limiting bursts on %s: %w", h.Name, err)
		}
	}
	return nil
}

// transferPrefix is that of a lab of this process.
func transferPrefix(mode string) string { return fmt.Sprintf("wmb%d-%s-", os.Getpid(), mode) }

func newTransferLane(ctx context.Context, mode, self, dir string) (_ *transferLane, err error) {
	l := &transferLane{mode: mode}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.lab, err = lab.Up(lab.Config{Topology: "pair", Prefix: transferPrefix(mode)}); err != nil {
		return nil, err
	}
	socket, file := filepath.Join(dir, mode+".sock"), filepath.Join(dir, mode+".yaml")
	l.client = api.NewClient(socket)
	text := fmt.Sprintf("interfaces: [\"to-*\"]\nnetns: [%s, %s]\nprobe: ebpf\nflow: {max_entries: 65536}\nhistory: {use: never}\napi: {socket: %s}\n",
		l.lab.Host("alpha").Netns, l.lab.Host("beta").Netns, socket)
	if err := keepWindow(l.lab.Hosts()); err != nil {
		return nil, err
	}
	if mode == modeSingle {
		if err := endBursts(l.lab.Hosts()); err != nil {
			return nil, err
		}
	}
	if l.marks() {
		text += fmt.Sprintf("pdm: {%s, policies: [{to: \"2001:db8::/32\", for: 24h}]}\n", transferConfig[mode])
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	home, err := newSpace() // where the agent itself is has no interfaces
	if err != nil {
		return nil, err
	}
	defer home.close()
	l.agent, err = startProcess(home, filepath.Join(dir, mode+".log"), func() (bool, error) {
		status, err := l.client.Status(ctx)
		return err == nil && attached(status) && len(status.Hooks) == 4, nil
	}, self, "run", "--keep-privileges", "--config", file)
	if err != nil {
		return nil, fmt.Errorf("starting the agent: %w", err)
	}
	return l, nil
}

func (l *transferLane) close() error {
	var errs []error
	if l.agent != nil {
		errs = append(errs, l.agent.stop(syscall.SIGTERM))
	}
	if l.lab != nil {
		errs = append(errs, l.lab.Down())
	}
	return errors.Join(errs...)
}

// runsOfSameRounds are those of another lane in the rounds that this one took part in.
func (l *transferLane) runsOfSameRounds(other *transferLane) []transferRun {
	return slices.DeleteFunc(slices.Clone(other.runs), func(r transferRun) bool {
		return !slices.ContainsFunc(l.runs, func(own transferRun) bool { return own.round == r.round })
	})
}

// cost compares with the lane that is not marked, and makes sure that this one is.
func (l *transferLane) cost(ctx context.Context, unmarked *transferLane) (c TransferCost, err error) {
	values := func(runs []transferRun, f func(transferRun) float64) (v []float64) {
		for _, r := range runs {
			v = append(v, f(r))
		}
		return v
	}
	same := l.runsOfSameRounds(unmarked)
	rate := func(r transferRun) float64 { return r.rate }
	again := func(r transferRun) float64 { return r.retransmits }
	work := func(r transferRun) float64 { return r.processor }
	used, err := l.agent.used()
	if err != nil {
		return c, err
	}
	status, err := l.client.Status(ctx)
	if err != nil {
		return c, fmt.Errorf("asking the agent: %w", err)
	}
	ratio := func(f func(transferRun) float64) []float64 { return pairs(values(l.runs, f), values(same, f), over) }
	c = TransferCost{
		Mode: l.mode, Rate: spreadOf(values(l.runs, rate)), Ratio: spreadOf(ratio(rate)), RatioSure: confidence(ratio(rate)),
		Retransmits: spreadOf(values(l.runs, again)), More: pairwise(values(l.runs, again), values(same, again), minus),
		Processor: spreadOf(values(l.runs, work)), Work: spreadOf(ratio(work)), WorkSure: confidence(ratio(work)),
		Agent: float64((used - l.agent.ready).Microseconds()) / 1000 / float64(len(l.runs)+1),
	}
	if marks := pdmservice.StatusOf(&status); marks != nil {
		c.Marked = marks.Marked
	}
	if (c.Marked > 0) != l.marks() {
		return c, fmt.Errorf("%d packets were marked", c.Marked)
	}
	return c, nil
}

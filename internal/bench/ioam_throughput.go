package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/api"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
)

// IOAMThroughput compares TCP transfers through the chain.
type IOAMThroughput struct {
	Rounds int             `json:"rounds"`
	MTU    int             `json:"mtu"`
	Points []IOAMTransfers `json:"points"`
	Nodes  []NodeCost      `json:"nodes"`
}

// point is what transfers of a mode did.
func (t *IOAMThroughput) point(mode string, offload bool) *IOAMTransfers {
	for i := range t.Points {
		if p := &t.Points[i]; p.Mode == mode && p.Offload == offload {
			return p
		}
	}
	return nil
}

// IOAMTransfers is what the transfers of one mode did.
type IOAMTransfers struct {
	Figure  string  `json:"figure"`
	Mode    string  `json:"mode"`
	Over    string  `json:"over"`
	Value   float64 `json:"value"`
	Offload bool    `json:"offload"`          // TCP hands over bursts, which travel whole; else packets of the MTU's size
	Rate    Spread  `json:"gbit_per_s"`       // of payload, for a second of CPU time
	Ratio   Spread  `json:"ratio"`            // to the mode that it is compared with, in the same round
	Sure    Range   `json:"ratio_confidence"` // of its median
}

func (cfg Config) throughput() IOAMThroughput {
	if cfg.Quick {
		return IOAMThroughput{Rounds: 20}
	}
	return IOAMThroughput{Rounds: 100}
}

// warmUpRounds are those after which a connection sends as fast as it can, and is known to bring marked packets.
const warmUpRounds = 8

// sliceBytes are those of a turn: a few ms.
var sliceBytes = map[bool]int{true: 16 << 20, false: 1 << 20}

// throughputMTU is the lowest that leaves 1280 bytes, IPv6's minimum, next to eleven options.
const throughputMTU = 1640

// measureThroughput sends in all modes, in turns.
func measureThroughput(ctx context.Context, t IOAMThroughput, modes []ioamMode, progress func(string), self string) (_ IOAMThroughput, err error) {
	dir, remove, err := temporaryFolder()
	if err != nil {
		return t, err
	}
	defer remove()
	t.MTU = throughputMTU
	lanes := map[string]*ioamLane{}
	defer func() {
		for _, l := range lanes {
			err = errors.Join(err, l.close())
		}
	}()
	for _, kind := range []string{laneBare, laneOff, laneOn} {
		l := &ioamLane{kind: kind, dir: filepath.Join(dir, strings.ReplaceAll(kind, " ", "-")), self: self, insertions: insertions(modes)}
		lanes[kind] = l
		if err := l.open(ctx); err != nil {
			return t, fmt.Errorf("%s: %w", kind, err)
		}
	}
	for _, offload := range []bool{true, false} {
		points, err := measureModes(ctx, t.Rounds, lanes, modes, offload, progress)
		if err != nil {
			return t, err
		}
		t.Points = append(t.Points, points...)
	}
	if err := lanes[laneOn].inserted(ctx); err != nil {
		return t, err
	}
	progress("nodes")
	all := modes[slices.IndexFunc(modes, func(m ioamMode) bool { return m.name == modeAll })]
	if t.Nodes, err = measureNodes(ctx, t.Rounds, lanes[laneOn], lanes[laneOff], all.port); err != nil {
		return t, fmt.Errorf("nodes: %w", err)
	}
	return t, nil
}

// measureModes sends over one connection for each mode, in turns.
func measureModes(ctx context.Context, rounds int, lanes map[string]*ioamLane, modes []ioamMode, offload bool, progress func(string)) (out []IOAMTransfers, err error) {
	streams, values := map[string]*ioamStream{}, map[string][]float64{}
	defer func() {
		for _, s := range streams {
			s.close()
		}
	}()
	for _, l := range lanes {
		if err := setBursts(l.lab.Hosts()[0], offload); err != nil {
			return nil, err
		}
	}
	modes = slices.DeleteFunc(slices.Clone(modes), func(m ioamMode) bool {
		return !m.sent(offload)
	})
	for _, m := range modes {
		if streams[m.name], err = openStream(ctx, lanes[m.lane].lab, m.port, m.header); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	for round := range warmUpRounds + rounds {
		if round%20 == 0 {
			progress(fmt.Sprintf("throughput, bursts %t: round %d of %d", offload, round, warmUpRounds+rounds))
		}
		for i := range modes {
			m := modes[(round+i)%len(modes)]
			took, err := streams[m.name].move(sliceBytes[offload])
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			if round >= warmUpRounds {
				values[m.name] = append(values[m.name], 8*float64(sliceBytes[offload])/float64(took))
			}
		}
	}
	for _, m := range modes {
		ratios := pairs(values[m.name], values[m.over], over)
		out = append(out, IOAMTransfers{
			Figure: m.figure, Mode: m.name, Over: m.over, Value: m.x, Offload: offload,
			Rate: spreadOf(values[m.name]), Ratio: spreadOf(ratios), Sure: confidence(ratios),
		})
	}
	return out, nil
}

// setBursts has sockets of a host hand over bursts, or single packets.
func setBursts(h *lab.Host, on bool) error {
	segments := 1
	if on {
		segments = 65535
	}
	return h.Do(func() error {
		for _, i := range h.Interfaces {
			link, err := netlink.LinkByName(i.Name)
			if err == nil {
				err = netlink.LinkSetGSOMaxSegs(link, segments)
			}
			if err != nil {
				return fmt.Errorf("setting gso_max_segs of %s on %s: %w", i.Name, h.Name, err)
			}
		}
		return nil
	})
}

// ioamLane is a chain, with agents on all nodes or none.
type ioamLane struct {
	kind, dir, self string
	lab             *lab.Lab
	agents          []*process // in the order of the nodes
	clients         []*api.Client
	insertions      string // of alpha
}

func (l *ioamLane) open(ctx context.Context) (err error) {
	name := map[string]string{laneBare: "b", laneOff: "o", laneOn: "i"}[l.kind]
	if l.lab, err = lab.Up(lab.Config{Topology: "chain", Prefix: transferPrefix(name), MTU: throughputMTU}); err != nil {
		return err
	}
	if err := allowOptions(l.lab.Hosts()); err != nil || l.kind == laneBare {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	for i, h := range l.lab.Hosts() {
		if err := l.write(i); err != nil {
			return err
		}
		client := api.NewClient(l.path(i, "sock"))
		hooks := 2 * len(h.Interfaces)
		home, err := newSpace() // where the agent itself is has no interfaces
		if err != nil {
			return err
		}
		agent, err := startProcess(home, l.path(i, "log"), func() (bool, error) {
			status, err := client.Status(ctx)
			return err == nil && attached(status) && len(status.Hooks) == hooks, nil
		}, l.self, "run", "--keep-privileges", "--config", l.path(i, "yaml"))
		home.close()
		if err != nil {
			return fmt.Errorf("starting the agent of %s: %w", h.Name, err)
		}
		l.agents, l.clients = append(l.agents, agent), append(l.clients, client)
	}
	return nil
}

// allowOptions has Linux pass packets with as many options as are inserted; by default it drops those with
// more than eight.
func allowOptions(hosts []*lab.Host) error {
	for _, h := range hosts {
		if err := h.Do(func() error {
			return os.WriteFile("/proc/sys/net/ipv6/max_hbh_opts_number", []byte("32"), 0)
		}); err != nil {
			return fmt.Errorf("on %s: %w", h.Name, err)
		}
	}
	return nil
}

// path is a file of a node's agent.
func (l *ioamLane) path(node int, kind string) string {
	return filepath.Join(l.dir, fmt.Sprintf("%d.%s", node, kind))
}

// write writes the configuration of a node.
func (l *ioamLane) write(node int) error {
	h := l.lab.Hosts()[node]
	text := fmt.Sprintf("interfaces: [\"to-*\"]\nnetns: [%s]\nprobe: ebpf\nflow: {max_entries: 65536}\nhistory: {use: never}\napi: {socket: %s}\n", h.Netns, l.path(node, "sock"))
	if l.kind == laneOn {
		var ifaces, spaces []string
		for n, i := range h.Interfaces {
			ifaces = append(ifaces, fmt.Sprintf("%s:%d", i.Name, 10*(node+1)+n))
		}
		for n := range benchSpaces {
			spaces = append(spaces, fmt.Sprintf("{id: %d, remove: %t}", benchSpace+n, node == chainNodes-1))
		}
		text += fmt.Sprintf("ioam:\n  node: {id: %d}\n  interfaces: [%s]\n  namespaces: [%s]\n", node+1, strings.Join(ifaces, ", "), strings.Join(spaces, ", "))
		if node == 0 {
			text += "  insert: " + l.insertions + "\n"
		}
	}
	return os.WriteFile(l.path(node, "yaml"), []byte(text), 0o600)
}

// inserted fails unless alpha inserted what its configuration says.
func (l *ioamLane) inserted(ctx context.Context) error {
	s, err := l.clients[0].Status(ctx)
	if err != nil {
		return fmt.Errorf("asking the first agent: %w", err)
	}
	node := ioamservice.StatusOf(&s)
	if node == nil || len(node.Insertions) == 0 {
		return fmt.Errorf("the first node inserts nothing: %+v", node)
	}
	// The first packets of a connection show whether options arrive. A burst is one packet of those chosen. Full bursts have no
	// space for long options.
	full := slices.ContainsFunc(node.Passed, func(p ioamservice.Passed) bool { return p.Reason == "not_inserted_too_long" })
	for _, in := range node.Insertions {
		if in.Named == 0 || in.Chosen > 10 && (in.Inserted == 0 || in.Inserted < in.Chosen/2 && !full) {
			return fmt.Errorf("%s: traces in %d packets; %d of %d were chosen; others: %+v", in.Name, in.Inserted, in.Chosen, in.Named, node.Passed)
		}
	}
	return nil
}

func (l *ioamLane) close() error {
	var errs []error
	for _, a := range l.agents {
		errs = append(errs, a.stop(syscall.SIGTERM))
	}
	if l.lab != nil {
		errs = append(errs, l.lab.Down())
	}
	return errors.Join(errs...)
}

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/api"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
)

// IOAMThroughput compares TCP transfers through the chain.
type IOAMThroughput struct {
	Rounds  int             `json:"rounds"`
	Seconds float64         `json:"seconds"` // of each transfer
	MTU     int             `json:"mtu"`
	Points  []IOAMTransfers `json:"points"`
	Nodes   []NodeCost      `json:"nodes"`
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
	Offload bool    `json:"offload"`    // TCP hands over bursts, which travel whole; else packets of the MTU's size
	Rate    Spread  `json:"gbit_per_s"` // of payload, for a second of CPU time
	Ratio   Spread  `json:"ratio"`      // to the mode that it is compared with, in the same round
}

func (cfg Config) throughput() IOAMThroughput {
	if cfg.Quick {
		return IOAMThroughput{Rounds: 5, Seconds: 0.2}
	}
	return IOAMThroughput{Rounds: 15, Seconds: 0.3}
}

// warmUp is how long a connection takes to send as fast as it can, and to be known to bring marked packets.
const warmUp = 150 * time.Millisecond

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
		l := &ioamLane{kind: kind, dir: filepath.Join(dir, strings.ReplaceAll(kind, " ", "-")), self: self}
		lanes[kind] = l
		if err := l.open(ctx); err != nil {
			return t, fmt.Errorf("%s: %w", kind, err)
		}
	}
	for _, offload := range []bool{true, false} { // single packets last: the nodes are measured with them
		for _, l := range lanes {
			if err := setBursts(l.lab.Hosts()[0], offload); err != nil {
				return t, err
			}
		}
		values := map[string][]float64{}
		for round := range t.Rounds + 1 {
			progress(fmt.Sprintf("throughput, offloads %t: round %d of %d", offload, round, t.Rounds))
			for i := range modes {
				m := modes[(round+i)%len(modes)] // none is always the first
				if offload && m.figure != figureRegistered && m.name != modeOne && m.name != modeAll {
					continue
				}
				if err := lanes[m.lane].insert(ctx, m.insert); err != nil {
					return t, fmt.Errorf("%s: %w", m.name, err)
				}
				s, err := stream(ctx, lanes[m.lane].lab, m.header, warmUp, time.Duration(t.Seconds*float64(time.Second)))
				if err != nil {
					return t, fmt.Errorf("%s: %w", m.name, err)
				}
				if err := lanes[m.lane].inserts(ctx); err != nil {
					return t, fmt.Errorf("%s: %w", m.name, err)
				}
				if round > 0 { // the first warms up
					values[m.name] = append(values[m.name], s.perProcessor())
				}
			}
		}
		for _, m := range modes {
			if v := values[m.name]; v != nil {
				t.Points = append(t.Points, IOAMTransfers{
					Figure: m.figure, Mode: m.name, Over: m.over, Value: m.x, Offload: offload,
					Rate: spreadOf(v), Ratio: pairwise(v, values[m.over], over),
				})
			}
		}
	}
	progress("nodes")
	all := modes[slices.IndexFunc(modes, func(m ioamMode) bool { return m.name == modeAll })]
	lasts := time.Duration(t.Seconds * float64(time.Second))
	if t.Nodes, err = measureNodes(ctx, t.Rounds, lasts, lanes[laneOn], lanes[laneOff], all.insert); err != nil {
		return t, fmt.Errorf("nodes: %w", err)
	}
	return t, nil
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
	inserted        string // what alpha inserts
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
		if err := l.write(i, ""); err != nil {
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
		}, l.self, "run", "--config", l.path(i, "yaml"))
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
func (l *ioamLane) write(node int, insert string) error {
	h := l.lab.Hosts()[node]
	text := fmt.Sprintf("interfaces: [\"to-*\"]\nnetns: [%s]\nprobe: ebpf\nflow: {max_entries: 65536}\napi: {socket: %s}\n", h.Netns, l.path(node, "sock"))
	if l.kind == laneOn {
		var ifaces, spaces []string
		for n, i := range h.Interfaces {
			ifaces = append(ifaces, fmt.Sprintf("%s:%d", i.Name, 10*(node+1)+n))
		}
		for n := range benchSpaces {
			spaces = append(spaces, fmt.Sprintf("{id: %d, remove: %t}", benchSpace+n, node == chainNodes-1))
		}
		text += fmt.Sprintf("ioam:\n  node: {id: %d}\n  interfaces: [%s]\n  namespaces: [%s]\n", node+1, strings.Join(ifaces, ", "), strings.Join(spaces, ", "))
		if insert != "" {
			text += "  insert: [" + insert + "]\n"
		}
	}
	return os.WriteFile(l.path(node, "yaml"), []byte(text), 0o600)
}

// insert has alpha insert something else, from the next connection on.
func (l *ioamLane) insert(ctx context.Context, what string) error {
	if l.kind != laneOn || what == l.inserted {
		return nil
	}
	if err := l.write(0, what); err != nil {
		return err
	}
	reloaded := func() (int, string, error) {
		text, err := os.ReadFile(l.path(0, "log"))
		return bytes.Count(text, []byte("configuration reloaded")), string(text), err
	}
	before, known, err := reloaded()
	if err != nil {
		return err
	}
	if err := l.agents[0].cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("reloading: %w", err)
	}
	l.inserted = what
	return l.agents[0].poll(ctx, 5*time.Millisecond, func() (bool, error) {
		n, text, err := reloaded()
		if strings.Contains(text[len(known):], "level=ERROR") || strings.Contains(text[len(known):], "level=WARN") {
			return false, fmt.Errorf("the agent says: %s", text[len(known):])
		}
		return n > before, err
	})
}

// inserts fails unless alpha inserted what its configuration says, into what was sent since it was loaded.
func (l *ioamLane) inserts(ctx context.Context) error {
	if l.inserted == "" {
		return nil
	}
	s, err := l.clients[0].Status(ctx)
	if err != nil {
		return fmt.Errorf("asking the first agent: %w", err)
	}
	node := ioamservice.StatusOf(&s)
	if node == nil || len(node.Insertions) != 1 {
		return fmt.Errorf("the first node inserts nothing: %+v", node)
	}
	// The first packets of a connection show whether options arrive. A burst is one packet of those chosen.
	if in := node.Insertions[0]; in.Named == 0 || in.Chosen > 10 && in.Inserted < in.Chosen/2 {
		return fmt.Errorf("traces in %d packets; %d of %d were chosen; others: %+v", in.Inserted, in.Chosen, in.Named, node.Passed)
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

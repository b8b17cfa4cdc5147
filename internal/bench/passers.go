package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/waymark-net/waymark/internal/balance"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/forward"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/test/packet"
)

// startPassDown makes the driver of the generator free each frame.
func startPassDown(_ context.Context, l *passLane) (passing, error) {
	return passing{}, l.router.handle.LinkSetDown(l.in)
}

// startLeast forwards by a program that checks and counts nothing.
func startLeast(_ context.Context, l *passLane) (p passing, err error) {
	var attached link.Link
	err = l.router.do(probeProcessor, func() error {
		attached, err = link.AttachXDP(link.XDPOptions{Program: l.programs.Programs["pass_least"], Interface: l.in.Attrs().Index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return p, fmt.Errorf("attaching to %s: %w", passInto, err)
	}
	return passing{stop: attached.Close}, nil
}

// rulesetStarter gives the router rules of nftables. tracks: each flow needs an entry of connection tracking.
func rulesetStarter(tracks bool, table string) passStarter {
	return func(ctx context.Context, l *passLane) (p passing, err error) {
		if tracks {
			if err := tracksSoMany(l.packets.flows); err != nil {
				return p, err
			}
		}
		_, err = l.router.command(ctx, table, "nft", "-f", "-")
		return p, err
	}
}

// tracksSoMany reports whether connection tracking takes so many flows.
func tracksSoMany(flows int) error {
	const file = "/proc/sys/net/netfilter/nf_conntrack_max"
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("connection tracking is not available: %w", err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil && flows > most {
		err = fmt.Errorf("connection tracking takes %d flows at most (%s)", most, file)
	}
	return err
}

const (
	trackedTable = `table ip bench {
	chain forward {
		type filter hook forward priority 0;
		ct state established,related accept
		accept
	}
}
`
	flowTable = `table ip bench {
	flowtable fast {
		hook ingress priority 0; devices = { ` + passInto + `, ` + passOut + ` };
	}
	chain forward {
		type filter hook forward priority 0;
		flow add @fast
	}
}
`
)

// rewriteTable has nftables choose a backend by a hash, and connection tracking remember it.
func rewriteTable() string {
	var to []string
	for i := range passBackends {
		to = append(to, fmt.Sprintf("%d : %s", i, passBackend(i)))
	}
	return fmt.Sprintf(`table ip bench {
	chain prerouting {
		type nat hook prerouting priority -100;
		ip daddr %s udp dport %d dnat to jhash ip saddr . udp sport mod %d map { %s }
	}
}
`, passService, passPort, passBackends, strings.Join(to, ", "))
}

// startIPVS has IPVS choose a backend by Maglev's hash, which it sends frames to as they are.
func startIPVS(ctx context.Context, l *passLane) (p passing, err error) {
	service := fmt.Sprintf("%s:%d", passService, passPort)
	_, err = l.router.command(ctx, "", "ipvsadm", "--add-service", "--udp-service", service, "--scheduler", "mh")
	for i := range passBackends {
		if err == nil {
			_, err = l.router.command(ctx, "", "ipvsadm", "--add-server", "--udp-service", service, "--real-server", passBackend(i).String(), "--gatewaying")
		}
	}
	return p, err
}

// xdpForwardScript keeps its maps in a file system that ends with it, and its programs until stdin ends.
const xdpForwardScript = `set -e
mount -n -t bpf bpf /sys/fs/bpf
xdp-forward load "$@"
echo ready
read -r line || true
xdp-forward unload "$@"
`

func startXDPForward(ctx context.Context, l *passLane) (p passing, err error) {
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", xdpForwardScript, "sh", passInto, passOut)
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		return p, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return p, err
	}
	if err := l.router.do(probeProcessor, cmd.Start); err != nil {
		return p, fmt.Errorf("starting unshare: %w", err)
	}
	p.stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	line := make([]byte, len("ready\n"))
	if _, err := out.Read(line); string(line) != "ready\n" {
		return passing{}, fmt.Errorf("%w: %s", errors.Join(err, p.stop()), strings.TrimSpace(said.String()))
	}
	return p, nil
}

// startForward has Waymark forward, which also counts flows: as an agent does.
func startForward(_ context.Context, l *passLane) (passing, error) {
	_, p, err := l.startForwarder()
	return p, err
}

func (l *passLane) startForwarder() (d *datapath.Datapath, p passing, err error) {
	f := forward.New(forward.Config{Hints: true}, slog.New(slog.DiscardHandler))
	if d, p, err = l.startDatapath(f.Stage(func(string) bool { return true })); err != nil {
		return nil, p, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { f.Run(ctx) }) // else programs cease to forward
	stop := p.stop
	p.stop = func() error {
		cancel()
		watch.Wait()
		return stop()
	}
	p.passed = func() (n uint64, err error) {
		all, err := f.Ports()
		for i := range all {
			n += all[i].Packets[0]
		}
		return n, err
	}
	return d, p, nil
}

// startDatapath runs a stage of Waymark at the router.
func (l *passLane) startDatapath(stage *datapath.Stage) (d *datapath.Datapath, p passing, err error) {
	log := slog.New(slog.DiscardHandler)
	tags := hints.NewReader(&hints.Config{Use: "auto"}, log) // veth has VLAN tags outside of frames
	// Both flows of all packets are on one processor.
	d = datapath.New(datapath.Config{MaxEntries: uint32(min(max(1<<19, 2*slotsPerFlow*runtime.NumCPU()*l.packets.flows), 1<<23)), WholeTable: true, Stages: []*datapath.Stage{tags.Stage(), stage}}, log)
	if err := d.Open(); err != nil {
		return nil, p, err
	}
	p.settle = func() error { return d.Drain(func(*flow.Delta) {}) }
	p.stop = func() error {
		d.Close()
		return nil
	}
	for _, i := range []netlink.Link{l.in, l.out} {
		if _, err := d.Attach(datapath.Target{
			Iface: flow.NewIface(0, uint32(i.Attrs().Index)), Name: i.Attrs().Name,
			Do: func(f func() error) error { return l.router.do(probeProcessor, f) },
		}); err != nil {
			return nil, passing{}, errors.Join(err, p.stop())
		}
	}
	return d, p, nil
}

// balanceStarter has Waymark balance, and also count flows.
func balanceStarter(how balance.Forwarding) passStarter {
	return func(_ context.Context, l *passLane) (passing, error) {
		_, p, err := l.startBalancer(how)
		return p, err
	}
}

func (l *passLane) startBalancer(how balance.Forwarding) (d *datapath.Datapath, p passing, err error) {
	b := newPassBalancer(l.packets.flows)
	if d, p, err = l.startDatapath(b.Stage()); err != nil {
		return nil, p, err
	}
	if err := b.Apply(passServices(how), func(balance.Address, netip.Addr) bool { return true }); err != nil {
		return nil, passing{}, errors.Join(err, p.stop())
	}
	p.passed = func() (n uint64, err error) {
		all, err := b.Services()
		for i := range all {
			n += all[i].Packets[0]
		}
		return n, err
	}
	return d, p, nil
}

func newPassBalancer(connections int) *balance.Balancer {
	return balance.New(balance.Config{
		Connections: uint32(max(1<<16, 4*connections)), NewPerSecond: 1 << 30, Idle: time.Hour,
		Hints: true, Clients: func(string) bool { return true }, Unwraps: func(string) bool { return false },
	}, slog.New(slog.DiscardHandler))
}

func passServices(how balance.Forwarding) []balance.Service {
	s := balance.Service{
		Name: "bench", Address: balance.Address{Addr: netip.MustParseAddr(passService), Proto: packet.ProtoUDP, Port: passPort},
		Forwarding: how, None: balance.NoneDrop,
	}
	for i := range passBackends {
		addr, _ := netip.AddrFromSlice(passBackend(i))
		s.Backends = append(s.Backends, balance.Backend{Addr: addr, Weight: 1})
	}
	return []balance.Service{s}
}

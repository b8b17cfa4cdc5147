package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/gate"
)

func droppers() []dropper {
	return []dropper{
		{name: dropSending, start: startDown},
		{name: dropNone},
		{name: dropIptables, needs: "iptables-legacy", start: startIptables},
		{name: dropNFT, needs: "nft", start: startNFT},
		{name: "a tc program that only drops", start: startTC},
		{name: "an XDP program that only drops, generic", start: xdpStarter(link.XDPGenericMode)},
		{name: "an XDP program that only drops, native", start: xdpStarter(link.XDPDriverMode)},
		{name: dropFilterUDP, needs: "xdp-filter", start: xdpFilterStarter("-f udp")},
		{name: dropFilterAll, needs: "xdp-filter", start: xdpFilterStarter("")},
		{name: "waymark, tc", start: gateStarter(gate.ModeTC)},
		{name: dropWaymark, start: gateStarter(gate.ModeNative)},
		{name: dropFilterUDP + inTurns, needs: "xdp-filter", start: xdpFilterStarter("-f udp"), flows: manyFlows},
		{name: dropFilterAll + inTurns, needs: "xdp-filter", start: xdpFilterStarter(""), flows: manyFlows},
		{name: dropWaymark + inTurns, start: gateStarter(gate.ModeNative), flows: manyFlows},
	}
}

// startDown makes the driver of the sender free each frame.
func startDown(_ context.Context, s *space, iface, _ string) (dropping, error) {
	l, err := s.handle.LinkByName(iface)
	if err != nil {
		return dropping{}, err
	}
	return dropping{}, s.handle.LinkSetDown(l)
}

// installed is an error where a program is not; empty: none is needed.
func installed(name string) error {
	if name == "" {
		return nil
	}
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%s is not installed", name)
	}
	return nil
}

// command runs a program in the namespace.
func (s *space) command(ctx context.Context, input, name string, args ...string) (out string, err error) {
	err = s.do(probeProcessor, func() error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin = strings.NewReader(input)
		text, err := cmd.CombinedOutput()
		out = string(text)
		if err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(out))
		}
		return nil
	})
	return out, err
}

// counted asks a program for a number.
func (s *space) counted(number *regexp.Regexp, name string, args ...string) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		text, err := s.command(ctx, "", name, args...)
		return match(number, text), err
	}
}

var iptablesCount = regexp.MustCompile(`(?m)^\s*(\d+)\s+\d+ DROP`)

func startIptables(ctx context.Context, s *space, iface, dir string) (dropping, error) {
	tool := func(args ...string) []string {
		return append([]string{"XTABLES_LOCKFILE=" + filepath.Join(dir, "xtables.lock"), "iptables-legacy", "-t", "raw"}, args...)
	}
	_, err := s.command(ctx, "", "env", tool("-A", "PREROUTING", "-i", iface, "-p", "udp", "--dport", "53", "-j", "DROP")...)
	return dropping{count: s.counted(iptablesCount, "env", tool("-nvxL", "PREROUTING")...)}, err
}

var nftCount = regexp.MustCompile(`counter packets (\d+)`)

func startNFT(ctx context.Context, s *space, iface, dir string) (dropping, error) {
	return nftStarter("", "")(ctx, s, iface, dir)
}

// nftStarter has sets, and rules before the one that drops.
func nftStarter(sets, rules string) starter {
	return func(ctx context.Context, s *space, iface, _ string) (dropping, error) {
		_, err := s.command(ctx, fmt.Sprintf(`table netdev bench {
%s	chain ingress {
		type filter hook ingress device "%s" priority 0;
%s		udp dport 53 counter drop
	}
}
`, sets, iface, rules), "nft", "-f", "-")
		return dropping{count: s.counted(nftCount, "nft", "list", "chain", "netdev", "bench", "ingress")}, err
	}
}

// dropProgram loads one of the programs that only drop.
func dropProgram(name string) (*ebpf.Program, error) {
	spec, err := program.Generate()
	if err != nil {
		return nil, err
	}
	p, err := ebpf.NewProgram(spec.Programs[name])
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", name, err)
	}
	return p, nil
}

// attach attaches one of the programs that only drop, in the namespace.
func (s *space) attach(name, iface string, how func(p *ebpf.Program, index int) (link.Link, error)) (dropping, error) {
	l, err := s.handle.LinkByName(iface)
	if err != nil {
		return dropping{}, err
	}
	p, err := dropProgram(name)
	if err != nil {
		return dropping{}, err
	}
	defer p.Close()
	var attached link.Link
	err = s.do(probeProcessor, func() error {
		attached, err = how(p, l.Attrs().Index)
		return err
	})
	if err != nil {
		return dropping{}, fmt.Errorf("attaching %s to %s: %w", name, iface, err)
	}
	return dropping{stop: attached.Close}, nil
}

func startTC(_ context.Context, s *space, iface, _ string) (dropping, error) {
	return s.attach("drop_late", iface, func(p *ebpf.Program, index int) (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Program: p, Interface: index, Attach: ebpf.AttachTCXIngress})
	})
}

func xdpStarter(mode link.XDPAttachFlags) func(context.Context, *space, string, string) (dropping, error) {
	return func(_ context.Context, s *space, iface, _ string) (dropping, error) {
		return s.attach("drop_early", iface, func(p *ebpf.Program, index int) (link.Link, error) {
			return link.AttachXDP(link.XDPOptions{Program: p, Interface: index, Flags: mode})
		})
	}
}

// parsedStarter drops by the port, with the least parser.
func parsedStarter(_ context.Context, s *space, iface, _ string) (dropping, error) {
	return s.attach("drop_parsed", iface, func(p *ebpf.Program, index int) (link.Link, error) {
		return link.AttachXDP(link.XDPOptions{Program: p, Interface: index, Flags: link.XDPDriverMode})
	})
}

var xdpFilterCount = regexp.MustCompile(`XDP_DROP\s+(\d+) pkts`)

// xdpFilterScript keeps its maps in a file system that ends with it. It answers a line on stdin with the status, once,
// and the end of stdin by taking the program away.
const xdpFilterScript = `set -e
mount -n -t bpf bpf /sys/fs/bpf
xdp-filter load -m native $1 "$0"
xdp-filter port 53 -m dst -p udp
echo ready
if read -r line; then xdp-filter status; fi
xdp-filter unload "$0"
`

// xdpFilterStarter has xdp-filter load the program for some features; without a choice that for all.
func xdpFilterStarter(features string) starter {
	return func(_ context.Context, s *space, iface, _ string) (dropping, error) {
		return startXDPFilter(s, iface, features)
	}
}

func startXDPFilter(s *space, iface, features string) (dropping, error) {
	cmd := exec.Command("unshare", "-m", "sh", "-c", xdpFilterScript, iface, features)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return dropping{}, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return dropping{}, err
	}
	if err := s.do(probeProcessor, cmd.Start); err != nil {
		return dropping{}, fmt.Errorf("starting unshare: %w", err)
	}
	stop := func() error { return errors.Join(in.Close(), cmd.Wait()) }
	out := bufio.NewReader(pipe)
	if line, err := out.ReadString('\n'); line != "ready\n" {
		return dropping{}, fmt.Errorf("%w: %s", errors.Join(err, stop()), strings.TrimSpace(stderr.String()))
	}
	return dropping{stop: stop, count: func(context.Context) (uint64, error) {
		if _, err := io.WriteString(in, "\n"); err != nil {
			return 0, err
		}
		text, err := io.ReadAll(out)
		return match(xdpFilterCount, string(text)), err
	}}, nil
}

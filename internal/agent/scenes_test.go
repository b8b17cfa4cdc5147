package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/config"
	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/internal/verdict"
)

// scene is what fails in a lab in which all was well.
type scene struct {
	name     string
	topology string
	change   func(t *testing.T, cfg *config.Config) // of the agent, from the start on
	act      func(*playing) error                   // all the time; nil: requests
	fault    func(t *testing.T, g *playing) error
	kind     verdict.Kind
	says     []string
}

// scenes are one for each kind that can be provoked on this machine; losses of the agent and retransmissions have tests of
// their own.
var scenes = []scene{
	{
		name: "slow server", topology: "pair", change: markedBut(func(y *config.Why) *time.Duration { return &y.ServerDelay }),
		fault: func(_ *testing.T, g *playing) error { g.service.Think(40 * time.Millisecond); return nil },
		kind:  verdict.ServerSlow, says: []string{"]:8080", "The server takes "},
	},
	{
		name: "slow link", topology: "path", change: slowLink,
		fault: func(_ *testing.T, g *playing) error {
			slow := wire.Direction{Delay: 20 * time.Millisecond}
			return g.relay.Change(wire.Config{AB: slow, BA: slow})
		},
		kind: verdict.PathDelay, says: []string{"The link from ", "/to-beta", "/to-alpha"}, // both ways are slow
	},
	{
		name: "loss with PDM", topology: "chain", change: marked, act: stream, fault: lossyLink,
		kind: verdict.PathLoss, says: []string{"The link from ", "-porthos/to-aramis to ", "-aramis/to-porthos"},
	},
	{
		name: "loss with IOAM", topology: "chain", change: numbered, act: stream, fault: lossyLink,
		kind: verdict.PathLoss, says: []string{"The link from ", "-porthos/to-aramis to ", "-aramis/to-porthos"},
	},
	{
		name: "full link", topology: "pair", change: func(_ *testing.T, cfg *config.Config) { cfg.Interfaces[0].Speed = "20Mbit" },
		fault: also(bulk), kind: verdict.LinkFull, says: []string{"carries", "of 20.0Mbit/s", "]:5001"},
	},
	{
		name: "dead server", topology: "pair", kind: verdict.Unanswered, says: []string{"]:8080 does not answer"},
		change: func(_ *testing.T, cfg *config.Config) { cfg.Flow.ScanInterval = 4 * time.Second }, // a SYN is repeated after a second
		fault:  func(t *testing.T, g *playing) error { return errors.Join(dead(t, g), also(connects(8080))(t, g)) },
	},
	{
		name: "dead server, no new connections", topology: "pair", kind: verdict.Unanswered, says: []string{"]:8080 does not answer", "open connection"},
		change: func(_ *testing.T, cfg *config.Config) { cfg.Flow.ScanInterval = 6 * time.Second }, // three timeouts take 1.4 s, of which half an interval has to be enough
		fault:  dead,
	},
	{
		name: "gate", topology: "pair", change: ruled, fault: also(connects(8081)),
		kind: verdict.GateDrops, says: []string{"drop tcp dst port 8081", "/to-alpha"},
	},
}

// dead has the service not answer any more.
func dead(t *testing.T, g *playing) error {
	out, err := g.beta.Run(t.Context(), "nft", "table inet dead { chain in { type filter hook input priority 0; tcp dport 8080 drop; }; }")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// marked has both hosts mark all packets, at any rate.
func marked(_ *testing.T, cfg *config.Config) {
	own := pdmservice.Section.Edit(cfg)
	own.Policies = []pdmservice.PolicyConfig{{To: "2001:db8::/32", Proto: "any", For: time.Hour, Interface: "*"}}
	own.MarksPerSecond, own.ClosedDomain = 0, true
}

// markedBut is marked, and one rule of delays with its default threshold.
func markedBut(threshold func(*config.Why) *time.Duration) func(*testing.T, *config.Config) {
	return func(t *testing.T, cfg *config.Config) {
		marked(t, cfg)
		def := config.Default().Why
		cfg.Why.ServerDelay, cfg.Why.PathDelay = patient, patient
		*threshold(&cfg.Why) = *threshold(&def)
	}
}

// slowLink has the rules of losses not see what waits in the process that delays packets, on a busy machine: TCP takes it
// for lost, and sends it again.
func slowLink(t *testing.T, cfg *config.Config) {
	markedBut(func(y *config.Why) *time.Duration { return &y.PathDelay })(t, cfg)
	cfg.Why.PathLoss, cfg.Why.Retransmissions = "50%", "50%"
}

// numbered has alpha number its datagrams with edge-to-edge options of IOAM, which end at beta.
func numbered(_ *testing.T, cfg *config.Config) {
	own := ioamservice.Section.Edit(cfg)
	own.Node.ID, own.Border, own.ClosedDomain = 1, "off", true
	own.Interfaces = []ioamservice.InterfaceConfig{{Name: "to-athos", ID: 12, Role: "egress"}, {Name: "to-aramis", ID: 51, Role: "ingress"}}
	own.Namespaces = []ioamservice.NamespaceConfig{{ID: 123, Remove: true}}
	own.Insert = []ioamservice.InsertConfig{{
		To: "2001:db8:4::2/128", Proto: "udp", Interface: "to-athos", Every: "1", Mode: "inline",
		OptionConfig: ioamservice.OptionConfig{Namespace: 123, E2E: []string{"sequence_64"}},
	}}
}

// ruled has a rule of the gate at beta that drops what nobody sends yet.
func ruled(t *testing.T, cfg *config.Config) {
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte("drop tcp dst port 8081\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	own := gateservice.Section.Edit(cfg)
	own.Interfaces, own.Rules, own.Mode = []string{"to-alpha"}, file, "tc"
}

func serviceConfig(host *lab.Host) traffic.ServiceConfig {
	return traffic.ServiceConfig{Network: "tcp", Listen: netip.AddrPortFrom(host.Addr6(), 8080)}
}

// requests has clients ask the service, each connection a few times.
func requests(g *playing) error {
	for g.ctx.Err() == nil {
		if _, err := traffic.Request(g.ctx, g.alpha, traffic.RequestConfig{
			Network: "tcp", To: g.service.Addr(), Clients: 4, Requests: 5, RequestSize: 100, ResponseSize: 1000, Interval: 25 * time.Millisecond,
		}); err != nil {
			return err
		}
	}
	return nil
}

// stream sends datagrams, of which some may be lost.
func stream(g *playing) error {
	for g.ctx.Err() == nil {
		if _, err := traffic.Datagrams(g.ctx, g.alpha, g.beta, traffic.DatagramConfig{
			To: netip.AddrPortFrom(g.beta.Addr6(), 0), Count: 1000, Size: 200, Interval: 500 * time.Microsecond, Idle: 100 * time.Millisecond,
		}); err != nil {
			return err
		}
	}
	return nil
}

// bulk sends as much as a link of 20 Mbit/s would hold, and more.
func bulk(g *playing) error {
	for g.ctx.Err() == nil {
		if _, err := traffic.Bulk(g.ctx, g.alpha, g.beta, traffic.BulkConfig{To: netip.AddrPortFrom(g.beta.Addr6(), 5001), Bytes: 20_000_000}); err != nil {
			return err
		}
	}
	return nil
}

// connects tries connections to a port that does not answer.
func connects(port uint16) func(*playing) error {
	return func(g *playing) error {
		failed := make(chan error, 100)
		dial := func() error {
			dialer := net.Dialer{}
			c, err := dialer.DialContext(g.ctx, "tcp", netip.AddrPortFrom(g.beta.Addr6(), port).String())
			if err == nil {
				return errors.Join(errors.New("the port answers"), c.Close())
			}
			return nil
		}
		for range cap(failed) {
			go func() { failed <- g.alpha.Do(dial) }()
		}
		var errs []error
		for range cap(failed) {
			errs = append(errs, <-failed)
		}
		return errors.Join(errs...)
	}
}

// also is a fault that is more traffic.
func also(act func(*playing) error) func(*testing.T, *playing) error {
	return func(t *testing.T, g *playing) error {
		g.run(t, func() {}, act)
		return nil
	}
}

// lossyLink has the link from porthos to aramis lose each hundredth packet: a filter behind the programs of the agent drops
// it, so that it left, and does not arrive. At random, few packets could have no loss that shows.
func lossyLink(_ *testing.T, g *playing) error {
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		return err
	}
	defer seen.Close()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMapValue(asm.R1, seen.FD(), 0),
		asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord),
		asm.Add.Imm(asm.R0, 1),
		asm.StoreMem(asm.R1, 0, asm.R0, asm.DWord),
		asm.Mod.Imm(asm.R0, 100),
		asm.JEq.Imm(asm.R0, 0, "drop"),
		asm.Mov.Imm(asm.R0, -1), // TC_ACT_UNSPEC
		asm.Return(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("drop"), // TC_ACT_SHOT
		asm.Return(),
	}})
	if err != nil {
		return err
	}
	defer p.Close()
	return g.lab.Host("porthos").Do(func() error {
		link, err := netlink.LinkByName("to-aramis")
		if err != nil {
			return err
		}
		at := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}
		if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscAttrs: at, QdiscType: "clsact"}); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		return netlink.FilterReplace(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 0xffff, Protocol: unix.ETH_P_ALL},
			Fd:          p.FD(), Name: "lossy", DirectAction: true,
		})
	})
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/internal/verdict"
	"github.com/waymark-net/waymark/test/await"
)

// verdicts are those of an agent at this moment.
func verdicts(t *testing.T, a *running) verdict.Answer {
	t.Helper()
	answer, err := a.why(t.Context(), api.WhyRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.(verdict.Answer)
}

// patient has the rules of delays not see what a busy machine adds: generated records test them.
const patient = 500 * time.Millisecond

// scene is a lab with one agent on both hosts, and what happens there.
type scene struct {
	name     string
	topology string
	wire     wire.Config // of the topology path
	change   func(t *testing.T, cfg *config.Config, alpha, beta *lab.Host)
	act      func(ctx context.Context, alpha, beta *lab.Host) error // until ctx ends
	kind     verdict.Kind                                           // empty: no verdict
	says     []string
}

// marked has both hosts mark all packets, at any rate.
func marked(_ *testing.T, cfg *config.Config, _, _ *lab.Host) {
	own := pdmservice.Section.Edit(cfg)
	own.Policies = []pdmservice.PolicyConfig{{To: "2001:db8::/32", Proto: "any", For: time.Hour, Interface: "*"}}
	own.MarksPerSecond = 0
	cfg.Why.ServerDelay, cfg.Why.PathDelay = patient, patient
}

// markedBut is marked with the default threshold of one rule.
func markedBut(threshold func(*config.Why) *time.Duration) func(*testing.T, *config.Config, *lab.Host, *lab.Host) {
	return func(t *testing.T, cfg *config.Config, alpha, beta *lab.Host) {
		marked(t, cfg, alpha, beta)
		def := config.Default().Why
		*threshold(&cfg.Why) = *threshold(&def)
	}
}

// slowLink has the rule of losses not see what waits in the process that delays packets, on a busy machine.
func slowLink(t *testing.T, cfg *config.Config, alpha, beta *lab.Host) {
	markedBut(func(y *config.Why) *time.Duration { return &y.PathDelay })(t, cfg, alpha, beta)
	cfg.Why.PathLoss = "50%"
}

// scenes are one for each kind that can be provoked on this machine; losses of the agent and
// retransmissions have tests of their own.
var scenes = []scene{
	{
		name: "healthy", topology: "pair", change: marked,
		act: requests(0, 2*time.Millisecond),
	},
	{
		name: "slow server", topology: "pair", change: markedBut(func(y *config.Why) *time.Duration { return &y.ServerDelay }), kind: verdict.ServerSlow,
		act: requests(40*time.Millisecond, 0), says: []string{"]:8080", "The server takes 4"},
	},
	{
		name: "slow link", topology: "path", change: slowLink, kind: verdict.PathDelay,
		wire: wire.Config{AB: wire.Direction{Delay: 20 * time.Millisecond}, BA: wire.Direction{Delay: 20 * time.Millisecond}},
		act:  requests(0, 0), says: []string{"The link from ", "/to-beta", "/to-alpha"}, // both ways are slow
	},
	{
		name: "loss", topology: "path", kind: verdict.PathLoss, wire: wire.Config{AB: wire.Direction{DropEvery: 50}},
		act: stream, says: []string{"The link from ", "-alpha/to-beta to ", "-beta/to-alpha"},
	},
	{
		name: "full link", topology: "pair", kind: verdict.LinkFull,
		change: func(_ *testing.T, cfg *config.Config, _, _ *lab.Host) { cfg.Interfaces[0].Speed = "20Mbit" },
		act: func(ctx context.Context, alpha, beta *lab.Host) error {
			for ctx.Err() == nil {
				if _, err := traffic.Bulk(ctx, alpha, beta, traffic.BulkConfig{To: netip.AddrPortFrom(beta.Addr6(), 5001), Bytes: 20_000_000}); err != nil {
					return err
				}
			}
			return nil
		},
		says: []string{"carries", "of 20.0Mbit/s", "]:5001"},
	},
	{
		name: "dead server", topology: "pair", kind: verdict.Unanswered,
		change: func(t *testing.T, _ *config.Config, _, beta *lab.Host) {
			rules := "table inet dead { chain in { type filter hook input priority 0; tcp dport 8080 drop; }; }"
			if out, err := beta.Run(t.Context(), "nft", rules); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		},
		act: connects, says: []string{"]:8080 does not answer"},
	},
	{
		name: "gate", topology: "pair", kind: verdict.GateDrops,
		change: func(t *testing.T, cfg *config.Config, _, _ *lab.Host) {
			file := filepath.Join(t.TempDir(), "rules")
			if err := os.WriteFile(file, []byte("drop tcp dst port 8080\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			own := gateservice.Section.Edit(cfg)
			own.Interfaces, own.Rules, own.Mode = []string{"to-alpha"}, file, "tc"
		},
		act: connects, says: []string{"drop tcp dst port 8080", "/to-alpha"},
	},
}

// requests has clients ask a server that thinks, each connection a few times.
func requests(think, every time.Duration) func(context.Context, *lab.Host, *lab.Host) error {
	return func(ctx context.Context, alpha, beta *lab.Host) error {
		service, err := traffic.Serve(ctx, beta, traffic.ServiceConfig{Network: "tcp", Listen: netip.AddrPortFrom(beta.Addr6(), 8080), Think: think})
		if err != nil {
			return err
		}
		defer service.Close()
		for ctx.Err() == nil {
			if _, err := traffic.Request(ctx, alpha, traffic.RequestConfig{
				Network: "tcp", To: service.Addr(), Clients: 4, Requests: 5, RequestSize: 100, ResponseSize: 2000, Interval: every,
			}); err != nil {
				return err
			}
		}
		return nil
	}
}

// stream sends more than are received.
func stream(ctx context.Context, alpha, beta *lab.Host) error {
	for ctx.Err() == nil {
		if _, err := traffic.Datagrams(ctx, alpha, beta, traffic.DatagramConfig{
			To: netip.AddrPortFrom(beta.Addr6(), 0), Count: 1000, Size: 200, Interval: 200 * time.Microsecond, Idle: 100 * time.Millisecond,
		}); err != nil {
			return err
		}
	}
	return nil
}

// connects tries connections to a port that does not answer.
func connects(ctx context.Context, alpha, beta *lab.Host) error {
	failed := make(chan error, 4)
	for range cap(failed) {
		go func() {
			failed <- alpha.Do(func() error {
				dialer := net.Dialer{}
				c, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(beta.Addr6(), 8080).String())
				if err == nil {
					return errors.Join(errors.New("the port answers"), c.Close())
				}
				return nil
			})
		}()
	}
	var errs []error
	for range cap(failed) {
		errs = append(errs, <-failed)
	}
	return errors.Join(errs...)
}

// play runs a scene and returns the agent while it acts.
func (s *scene) play(t *testing.T) *running {
	t.Helper()
	var l *lab.Lab
	if s.topology == "path" {
		l, _ = newPath(t, s.wire)
	} else {
		l = newLab(t)
	}
	alpha, beta := l.Host("alpha"), l.Host("beta")
	cfg, _ := agentConfig(t, "ebpf", alpha, beta)
	cfg.Flow.ScanInterval = 250 * time.Millisecond
	cfg.Why.PathDelay = patient
	if s.change != nil {
		s.change(t, &cfg, alpha, beta)
	}
	a := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.act(ctx, alpha, beta) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("the traffic ended: %v", err)
		}
	})
	return a
}

// TestWhy: what is wrong is the only verdict, and it names the place, from the first verdict on. What
// is healthy has none, for some seconds and many looks.
func TestWhy(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) { s.look(t, s.play(t)) })
	}
}

// looks is how often a verdict is looked at once it is there.
const looks = 3

// look waits for intervals or, where there has to be one, for a verdict.
func (s *scene) look(t *testing.T, a *running) {
	t.Helper()
	seen, last, missing := 0, uint64(0), ""
	defer func() {
		if t.Failed() && missing != "" {
			t.Error(missing)
		}
	}()
	await.True(t, "verdicts", func() bool {
		answer := verdicts(t, a)
		switch {
		case s.kind == "" && len(answer.Verdicts) > 0:
			t.Fatalf("%s: %+v", answer.Summary, answer.Verdicts)
		case s.kind == "" || len(answer.Verdicts) == 0:
			return s.kind == "" && a.intervals() > 12
		}
		if err := s.check(answer); err != nil {
			t.Fatal(err)
		}
		missing = s.lacks(answer)
		if n := a.intervals(); n > last && missing == "" {
			seen, last = seen+1, n
		}
		return seen == looks
	})
}

// check reports a verdict of another kind.
func (s *scene) check(a verdict.Answer) error {
	for _, v := range a.Verdicts {
		if v.Kind != s.kind {
			return fmt.Errorf("%s: %s", v.Kind, v.Text)
		}
	}
	return nil
}

// lacks is what the first verdict does not say: at which interface the gate drops is known from the
// next drain on.
func (s *scene) lacks(a verdict.Answer) string {
	for _, text := range s.says {
		if !strings.Contains(a.Verdicts[0].Text, text) {
			return fmt.Sprintf("%q does not say %q", a.Verdicts[0].Text, text)
		}
	}
	return ""
}

// TestWhyRetransmissions: an agent on the sender alone sees no loss, but what the kernel sends again,
// and of which connection.
func TestWhyRetransmissions(t *testing.T) {
	l, _ := newPath(t, wire.Config{AB: wire.Direction{Match: wire.Packets, DropEvery: 20}, BA: wire.Direction{Match: wire.Packets}})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	cfg, _ := agentConfig(t, "ebpf", alpha)
	cfg.Flow.ScanInterval = 250 * time.Millisecond
	a := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- requests(0, 0)(ctx, alpha, beta) }()
	defer func() {
		cancel()
		<-ended
	}()
	s := scene{kind: verdict.Retransmissions, says: []string{"Namespace " + alpha.Netns + " sends"}}
	s.look(t, a)
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/internal/verdict"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/soak"
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

// playing is a lab with one agent on all its hosts, and traffic.
type playing struct {
	*running
	lab         *lab.Lab
	alpha, beta *lab.Host
	scan        time.Duration    // length of an interval
	relay       *wire.Relay      // of the topology path
	service     *traffic.Service // that alpha asks
	ctx         context.Context  // of the traffic
}

// play makes the lab of a scene, and starts its agent and its traffic.
func (s *scene) play(t *testing.T) *playing {
	t.Helper()
	g := &playing{}
	if s.topology == "path" {
		g.lab, g.relay = newPath(t, wire.Config{})
	} else {
		g.lab = labtest.New(t, lab.Config{Topology: s.topology})
	}
	g.alpha, g.beta = g.lab.Host("alpha"), g.lab.Host("beta")
	cfg, _ := agentConfig(t, "ebpf", g.lab.Hosts()...)
	cfg.Flow.ScanInterval = time.Second
	cfg.Flow.MaxEntries = 16384
	cfg.Why.PathDelay = patient
	if s.change != nil {
		s.change(t, &cfg)
	}
	g.running, g.scan = start(t, cfg), cfg.Flow.ScanInterval
	ctx, cancel := context.WithCancel(t.Context())
	g.ctx = ctx
	service, err := traffic.Serve(ctx, g.beta, serviceConfig(g.beta))
	if err != nil {
		t.Fatal(err)
	}
	g.service = service
	act := requests
	if s.act != nil {
		act = s.act
	}
	g.run(t, cancel, act)
	return g
}

// run has something happen until the test ends.
func (g *playing) run(t *testing.T, cancel func(), act func(*playing) error) {
	ended := make(chan error, 1)
	go func() { ended <- act(g) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Logf("the traffic ended: %v", err)
		}
	})
}

// patient has the rules of delays not see what a busy machine adds: generated records test them.
const patient = 500 * time.Millisecond

// settled is how many intervals of a healthy lab pass before something is made to fail.
const settled = 2

// TestWhy: as long as all is well there is no verdict. Within two scan intervals from the fault on there are some, all of
// its kind, and the first one names the place. The fault begins as soon as an interval has ended; on a busy machine that may
// be late in the next one, which is then none of the two.
func TestWhy(t *testing.T) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for n := range soak.Times(1, 10) {
				t.Run(fmt.Sprint(n), s.fail)
			}
		})
	}
}

func (s *scene) fail(t *testing.T) {
	g := s.play(t)
	g.healthy(t, settled)
	if err := s.fault(t, g); err != nil {
		t.Fatal(err)
	}
	began := g.failed(t)
	const within = 2
	await.True(t, "verdicts", func() bool {
		passed := int64(g.intervals()) - began
		answer := verdicts(t, g.running)
		if passed > 0 && len(answer.Verdicts) > 0 {
			if err := s.check(answer); err != nil {
				t.Fatal(err)
			}
			t.Logf("interval %d: %s", passed, answer.Verdicts[0].Text)
			return true
		}
		if passed >= within {
			t.Fatalf("no verdict after %d intervals: %+v", passed, answer.Examined)
		}
		return false
	})
}

// failed is the number of the last interval without the fault that just began. The one that runs counts as such where half of
// it is over: what a median is of, or the loss of two intervals together, is then not the fault's.
func (g *playing) failed(t *testing.T) int64 {
	t.Helper()
	for {
		n := g.intervals()
		over := time.Since(verdicts(t, g.running).To)
		if g.intervals() != n { // one ended meanwhile
			continue
		}
		if over > g.scan/2 {
			n++
		}
		return int64(n)
	}
}

// healthy waits for a number of intervals in which nothing is wrong. It returns when one has ended.
func (g *playing) healthy(t *testing.T, intervals uint64) {
	t.Helper()
	await.True(t, "the first interval", func() bool { return g.intervals() > 0 })
	for last, end := g.intervals(), g.intervals()+intervals; last < end; {
		await.True(t, "an interval", func() bool { return g.intervals() > last })
		last = g.intervals()
		if last%600 == 0 {
			t.Logf("%d intervals", last)
		}
		if answer := verdicts(t, g.running); len(answer.Verdicts) > 0 {
			t.Fatalf("%s: %+v", answer.Summary, answer.Verdicts)
		}
	}
}

// check reports a verdict of another kind, and what the first one does not say.
func (s *scene) check(a verdict.Answer) error {
	for _, v := range a.Verdicts {
		if v.Kind != s.kind {
			return fmt.Errorf("%s: %s", v.Kind, v.Text)
		}
	}
	for _, text := range s.says {
		if !strings.Contains(a.Verdicts[0].Text, text) {
			return fmt.Errorf("%q does not say %q", a.Verdicts[0].Text, text)
		}
	}
	return nil
}

// TestHealthy: a lab in which nothing is wrong has no verdict in an hour. A busy machine makes a server slow indeed: for
// delays, its patience counts.
func TestHealthy(t *testing.T) {
	s := scene{topology: "pair", change: func(t *testing.T, cfg *config.Config) {
		marked(t, cfg)
		cfg.Why.ServerDelay = patient
	}}
	g := s.play(t)
	g.healthy(t, uint64(soak.Times(settled, 3600)))
	if answer := verdicts(t, g.running); !strings.HasPrefix(answer.Summary, "No server, path, link or rule stands out") {
		t.Error(answer.Summary)
	}
}

// TestWhyRetransmissions: an agent on the sender alone sees no loss, but what the kernel sends again,
// and of which connection.
func TestWhyRetransmissions(t *testing.T) {
	l, _ := newPath(t, wire.Config{AB: wire.Direction{Match: wire.Packets, DropEvery: 20}, BA: wire.Direction{Match: wire.Packets}})
	g := &playing{lab: l, alpha: l.Host("alpha"), beta: l.Host("beta")}
	cfg, _ := agentConfig(t, "ebpf", g.alpha)
	cfg.Flow.ScanInterval = 250 * time.Millisecond
	cfg.Why.ServerDelay, cfg.Why.PathDelay = patient, patient // as in scenes: a busy machine delays packets and answers
	g.running = start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	g.ctx = ctx
	service, err := traffic.Serve(ctx, g.beta, serviceConfig(g.beta))
	if err != nil {
		t.Fatal(err)
	}
	g.service = service
	g.run(t, cancel, requests)
	s := scene{kind: verdict.Retransmissions, says: []string{"Namespace " + g.alpha.Netns + " sends"}}
	await.True(t, "a verdict", func() bool {
		answer := verdicts(t, g.running)
		if len(answer.Verdicts) == 0 {
			return false
		}
		if err := s.check(answer); err != nil {
			t.Fatal(err)
		}
		return true
	})
}

package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/lab/wire"
)

// What the second act is about: how long a path and a service take. Long enough that a busy machine, which lets processes
// wait for some milliseconds, is not what is measured.
const (
	oneWay = 25 * time.Millisecond
	think  = 100 * time.Millisecond

	// How far from the truth is wrong: buckets are within 6 %, and this machine
	// has other things to do.
	tolerance = 0.10
)

// markAll is the part of a configuration that marks everything in the lab.
const markAll = `pdm:
  policies: [{to: "2001:db8::/32", proto: any, for: 1h}]
`

// delays: two hosts with a long path between them, and marks at both ends.
func (d *demo) delays(ctx context.Context) (err error) {
	d.say("Is it the network or the server? alpha asks beta, which is %v away and thinks for %v", oneWay, think)
	l, err := lab.Up(lab.Config{Topology: "path", Prefix: d.Prefix})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var path errgroup.Group
	defer func() {
		err = interrupted(ctx, err)
		_, stopErr := d.stop()
		cancel()
		err = errors.Join(err, stopErr, path.Wait(), l.Down())
	}()
	relay, err := l.NewRelay(wire.Config{AB: wire.Direction{Delay: oneWay}, BA: wire.Direction{Delay: oneWay}},
		slog.New(slog.NewTextHandler(d.Log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	path.Go(func() error { return relay.Run(ctx) })
	select {
	case <-relay.Ready():
	case <-time.After(10 * time.Second):
		return errors.New("the path does not open in 10 s")
	}
	for _, name := range []string{"alpha", "beta"} {
		if err := d.start(ctx, l.Host(name), markAll); err != nil {
			return err
		}
	}
	fmt.Fprintf(d.Out, "Agents run on both, and mark their packets (PDM, RFC 8250):\n%s", markAll)

	truths, err := d.ask(ctx, l)
	if err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	alpha := d.agents[0]
	d.say("What alpha's agent says")
	if err := d.show(ctx, alpha, "delays", "--by", "proto,peer,peer_port"); err != nil {
		return err
	}
	d.say("And the ground truth")
	return d.compareDelays(ctx, alpha, truths)
}

// asked is a service as it knows itself.
type asked struct {
	network string
	port    uint16
	thought time.Duration // median
}

// ask runs a service for each protocol, and clients that ask them at the same
// time.
func (d *demo) ask(ctx context.Context, l *lab.Lab) ([]asked, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	alpha, beta := l.Host("alpha"), l.Host("beta")
	var all errgroup.Group
	truths := make([]asked, 2)
	for i, network := range []string{"tcp", "udp"} {
		service, err := traffic.Serve(ctx, beta, traffic.ServiceConfig{
			Network: network, Listen: netip.AddrPortFrom(beta.Addr6(), 8080), Think: think,
		})
		if err != nil {
			return nil, err
		}
		defer service.Close()
		all.Go(func() error {
			_, err := traffic.Request(ctx, alpha, traffic.RequestConfig{
				Network: network, To: service.Addr(), Clients: 2, Requests: 20, RequestSize: 200, ResponseSize: 1000,
			})
			truths[i] = asked{network, service.Addr().Port(), service.Thought().Median()}
			return err
		})
	}
	return truths, all.Wait()
}

// compareDelays holds the medians that an agent tells against the truth.
func (d *demo) compareDelays(ctx context.Context, a *agent, truths []asked) error {
	t := tabwriter.NewWriter(d.Out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "median\tthe truth\tmeasured\tdifference\t")
	var wrong error
	for _, truth := range truths {
		answer, err := a.client.Flows(ctx, api.Request{
			Filter: fmt.Sprintf("%s and pdm and direction ingress and sport %d", truth.network, truth.port), By: "peer_service",
		})
		if err != nil {
			return err
		}
		var reported flow.PDM
		for i := range answer.Rows {
			if p := answer.Rows[i].PDM; p != nil {
				reported.Add(p)
			}
		}
		for _, one := range []struct {
			what  string
			truth time.Duration
			of    *flow.Delays
		}{
			{"time at the server", truth.thought, &reported.Server},
			{"round trip on the network", 2 * oneWay, &reported.Network},
		} {
			got := one.of.Quantile(0.5)
			off := float64(got)/float64(one.truth) - 1
			fmt.Fprintf(t, "%s, %s\t%v\t%v\t%+.1f %%\t\n", truth.network, one.what,
				one.truth.Round(10*time.Microsecond), got.Round(10*time.Microsecond), 100*off)
			if one.of.Count == 0 || math.Abs(off) > tolerance {
				wrong = errors.Join(wrong, fmt.Errorf("%s, %s: %v was measured of %v (%d times)", truth.network, one.what, got, one.truth, one.of.Count))
			}
		}
	}
	return errors.Join(t.Flush(), wrong)
}

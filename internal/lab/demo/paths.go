package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waymark-net/waymark/internal/api"
	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/internal/verdict"
)

// The third act: one of the routers is slow.
const (
	slowHost  = "porthos"
	slowHop   = 3
	slowBy    = 2 * time.Millisecond
	namespace = 123
)

// paths: five nodes, of which the first inserts traces and the last removes them.
func (d *demo) paths(ctx context.Context) (err error) {
	d.say("Which hop? In one of the three routers, each packet takes %v longer", slowBy)
	l, err := lab.Up(lab.Config{Topology: "chain", Prefix: d.Prefix, Slow: map[string]time.Duration{slowHost: slowBy}})
	if err != nil {
		return err
	}
	defer func() {
		err = interrupted(ctx, err)
		_, stopErr := d.stop()
		err = errors.Join(err, stopErr, l.Down())
	}()
	hosts := l.Hosts()
	configs := map[string]string{}
	for i := range hosts {
		configs[hosts[i].Name] = nodeConfig(hosts, i)
	}
	if err := d.startAll(ctx, hosts, configs); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "Each is a node of IOAM (RFC 9197), from 1, %s, to %d, %s. The first inserts a trace into each packet to the last:\n%s",
		hosts[0].Name, len(hosts), hosts[len(hosts)-1].Name, configs[hosts[0].Name])
	if err := d.askBeta(ctx, hosts[0], hosts[len(hosts)-1]); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	last := d.agents[len(d.agents)-1]
	answer, err := d.askPaths(ctx, last)
	if err != nil {
		return err
	}
	if len(answer.Paths) == 0 {
		return errors.New("no trace ended at beta")
	}
	d.say("What beta's agent says")
	if err := d.show(ctx, last, "paths"); err != nil {
		return err
	}
	if err := d.show(ctx, last, "paths", answer.Paths[0].ID); err != nil {
		return err
	}
	d.say("And the ground truth")
	if err := d.compareHops(hosts, &answer.Paths[0]); err != nil {
		return err
	}
	return d.why(ctx, last)
}

// why asks for a verdict, which names the slow host by its node.
func (d *demo) why(ctx context.Context, a *agent) error {
	d.say("Or ask why it is slow (why.path_delay is 1ms here)")
	if err := d.show(ctx, a, "why"); err != nil {
		return err
	}
	var answer verdict.Answer
	if err := a.client.Why(ctx, api.WhyRequest{}, &answer); err != nil {
		return err
	}
	for _, v := range answer.Verdicts {
		if v.Kind == verdict.PathDelay && !v.Where.Link && v.Where.Hop == slowHop {
			return nil
		}
	}
	return fmt.Errorf("no verdict names %s, node %d: %+v", slowHost, slowHop, answer.Verdicts)
}

// nodeConfig is the part of a configuration that makes a host the node of its number.
func nodeConfig(hosts []*lab.Host, i int) string {
	id := i + 1
	var ifaces []string
	for n, iface := range hosts[i].Interfaces {
		ifaces = append(ifaces, fmt.Sprintf("%s:%d", iface.Name, 10*id+n+1))
	}
	remove := ""
	if i == len(hosts)-1 {
		remove = ", remove: true"
	}
	text := fmt.Sprintf(`ioam:
  node: {id: %d}
  interfaces: [%s]
  namespaces: [{id: %d%s}]
`, id, strings.Join(ifaces, ", "), namespace, remove)
	if i == len(hosts)-1 {
		text += "why: {path_delay: 1ms}\n"
	}
	if i > 0 {
		return text
	}
	to := hosts[len(hosts)-1].Interfaces[0].Addr6.Masked()
	return text + fmt.Sprintf(`  insert: [{to: "%s", namespace: %d, size: %d, every: 1, mode: inline,
            trace: [hop_limit_node_id, interface_ids, timestamp_seconds, timestamp_fraction, transit_delay]}]
`, to, namespace, 20*len(hosts))
}

// startAll starts an agent on each host, at the same time.
func (d *demo) startAll(ctx context.Context, hosts []*lab.Host, more map[string]string) error {
	var all errgroup.Group
	for _, h := range hosts {
		a, err := d.launch(h, more[h.Name])
		if err != nil {
			return err
		}
		all.Go(func() error { return a.ready(ctx) })
	}
	return all.Wait()
}

// askBeta has alpha send requests, over TCP and UDP.
func (d *demo) askBeta(ctx context.Context, alpha, beta *lab.Host) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var all errgroup.Group
	for _, network := range []string{"tcp", "udp"} {
		service, err := traffic.Serve(ctx, beta, traffic.ServiceConfig{
			Network: network, Listen: netip.AddrPortFrom(beta.Addr6(), 8080),
		})
		if err != nil {
			return err
		}
		defer service.Close()
		all.Go(func() error {
			_, err := traffic.Request(ctx, alpha, traffic.RequestConfig{
				Network: network, To: service.Addr(), Clients: 2, Requests: 50, RequestSize: 200, ResponseSize: 1000,
				Interval: 40 * time.Millisecond,
			})
			return err
		})
	}
	return all.Wait()
}

// askPaths runs waymark paths.
func (d *demo) askPaths(ctx context.Context, a *agent) (answer ioamservice.Paths, err error) {
	cmd := exec.CommandContext(ctx, d.Binary, "paths", "-o", "json", "--socket", a.socket)
	cmd.Stderr = d.Log
	out, err := cmd.Output()
	if err != nil {
		return answer, fmt.Errorf("waymark paths: %w", err)
	}
	return answer, json.Unmarshal(out, &answer)
}

// compareHops compares the transit delays with what the lab adds to them: the slow host has the
// longest.
func (d *demo) compareHops(hosts []*lab.Host, p *ioamservice.Path) error {
	if len(p.Hops) != len(hosts) {
		return fmt.Errorf("a path of %d hops; there are %d nodes", len(p.Hops), len(hosts))
	}
	t := tabwriter.NewWriter(d.Out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "node\thost\tslowed by\ttransit delay, median\t")
	slowest, most := "", time.Duration(0)
	for i, hop := range p.Hops {
		if hop.NodeID == nil || int(*hop.NodeID) != i+1 {
			return fmt.Errorf("hop %d is not node %d", i+1, i+1)
		}
		added, delay := time.Duration(0), "-"
		if hosts[i].Name == slowHost {
			added = slowBy
		}
		if hop.Transit != nil {
			delay = hop.Transit.P50.Round(100 * time.Nanosecond).String()
			if hop.Transit.P50 > most {
				slowest, most = hosts[i].Name, hop.Transit.P50
			}
		}
		fmt.Fprintf(t, "%d\t%s\t%v\t%s\t\n", *hop.NodeID, hosts[i].Name, added, delay)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if off := float64(most)/float64(slowBy) - 1; slowest != slowHost || math.Abs(off) > tolerance {
		return fmt.Errorf("%s is the slowest hop with %v; %s was slowed by %v", slowest, most, slowHost, slowBy)
	}
	d.say("The slow hop is %s", slowest)
	return nil
}

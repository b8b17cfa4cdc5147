package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/waymark-net/waymark/internal/api"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/lab"
)

// ruled is the part of a configuration that has packets meet rules.
const ruled = `gate: {interfaces: ["to-*"]}
`

const (
	floodPort    = 9999
	floodPackets = 20_000
)

// flood: beta's agent drops datagrams by a rule, and they are in its flow records.
func (d *demo) flood(ctx context.Context, l *lab.Lab) error {
	beta := d.agents[len(d.agents)-1]
	d.say("A flood of %d datagrams from alpha, and a rule of beta that drops it in the kernel", floodPackets)
	if err := d.show(ctx, beta, "rules", "add", fmt.Sprintf("drop udp dst port %d", floodPort)); err != nil {
		return err
	}
	if err := shower(l.Host("alpha"), netip.AddrPortFrom(l.Host("beta").Addr4(), floodPort)); err != nil {
		return err
	}
	if err := d.settle(ctx); err != nil {
		return err
	}
	for _, args := range [][]string{{"rules", "list"}, {"flows", "drops > 0"}} {
		if err := d.show(ctx, beta, args...); err != nil {
			return err
		}
	}
	return d.compareDrops(ctx, beta)
}

// shower sends datagrams as fast as one sender does.
func shower(from *lab.Host, to netip.AddrPort) error {
	return from.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer c.Close()
		for range floodPackets {
			if _, err := c.Write(make([]byte, 100)); err != nil {
				return fmt.Errorf("flood: %w", err)
			}
		}
		return nil
	})
}

// compareDrops holds flow records against the counter of the rule. A link may lose a part of what was sent.
func (d *demo) compareDrops(ctx context.Context, a *agent) error {
	var list gate.Rules
	if err := a.client.Page(ctx, gate.RulesPath, &list); err != nil {
		return err
	}
	answer, err := a.client.Flows(ctx, api.Request{Filter: "drops > 0", By: "flow"})
	if err != nil {
		return err
	}
	var inRule, inFlows uint64
	for _, r := range list.Rules {
		inRule += r.Dropped
	}
	for _, r := range answer.Rows {
		inFlows += r.Dropped
	}
	fmt.Fprintf(d.Out, "%d datagrams were sent, %d dropped by the rule, %d of them are in flow records\n", floodPackets, inRule, inFlows)
	if inRule == 0 || inRule > floodPackets || inFlows != inRule {
		return errors.New("flood: the rule and the flow records differ")
	}
	return nil
}

package bench

import (
	"context"
	"fmt"
	"io"
)

// ForwardReport holds ways to forward packets side by side.
type ForwardReport struct {
	Run
	Passes
}

const (
	passForward = "waymark forward"
	// routeShift: routes are to 16 addresses each.
	routeShift   = 4
	limitForward = 1. / 3 // of what the kernel takes on the same pair
)

func forwarders() []passer {
	return []passer{
		{name: passSending, start: startPassDown},
		{name: passKernel},
		{name: passTracked, needs: "nft", start: rulesetStarter(true, trackedTable)},
		{name: "nftables, flow table", needs: "nft", start: rulesetStarter(true, flowTable)},
		{name: "an XDP program that only looks up the route", start: startLeast},
		{name: "xdp-forward", needs: "xdp-forward", start: startXDPForward},
		{name: passForward, start: startForward},
	}
}

// Forward measures ways to forward packets.
func Forward(ctx context.Context, cfg Config) (*ForwardReport, error) {
	run, err := begin("forward", cfg)
	if err != nil {
		return nil, err
	}
	r := &ForwardReport{Run: run, Passes: Passes{Packets: 50_000, Rounds: 21}}
	routes := []int{1, 1000, 100_000}
	if cfg.Quick {
		r.Packets, r.Rounds, routes = 50_000, 5, []int{1, 1000}
	}
	return r, r.run(ctx, cfg, routes)
}

func (r *ForwardReport) run(ctx context.Context, cfg Config, routes []int) error {
	plan := passPlan{flows: "routes", packets: passPackets{shift: routeShift}, ways: func(int) ([]passer, []passWork) { return forwarders(), forwardWork() }}
	if err := r.each(ctx, cfg.Progress, routes, plan); err != nil {
		return err
	}
	for _, c := range r.of(passForward) {
		r.Budgets = append(r.Budgets, budget(fmt.Sprintf("receiving and forwarding, over the kernel, %d routes", c.Flows), limitForward, c.Ratio.Median, "×"))
	}
	r.end()
	return nil
}

// WriteText writes the report as a text with tables.
func (r *ForwardReport) WriteText(w io.Writer) error {
	return r.writePasses(w, &r.Run, passText{
		flows: "routes",
		what:  "UDP datagrams, one to each route in turns",
	})
}

// WritePlots draws a bar for each way, with the most routes.
func (r *ForwardReport) WritePlots(dir string) error {
	return r.plot(dir, "forward", "Receiving and forwarding a packet, %d routes")
}

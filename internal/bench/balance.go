package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/balance"
)

// BalanceReport holds ways to balance packets side by side.
type BalanceReport struct {
	Run
	Passes
}

const (
	passRewrite = "nftables, DNAT by a hash"
	passBalance = "waymark balance, "
	// Limits of the design.
	limitBalance     = 150     // ns over the empty program
	limitConnections = 100_000 // with so many
)

func balancers() []passer {
	return []passer{
		{name: passSending, start: startPassDown},
		{name: passKernel},
		{name: passRewrite, needs: "nft", start: rulesetStarter(true, rewriteTable())},
		{name: "IPVS, Maglev, direct", needs: "ipvsadm", start: startIPVS},
		{name: passBalance + "L2", start: balanceStarter(balance.L2)},
		{name: passBalance + "IPIP", start: balanceStarter(balance.IPIP)},
		{name: passBalance + "GUE", start: balanceStarter(balance.GUE)},
	}
}

// Balance measures ways to balance packets.
func Balance(ctx context.Context, cfg Config) (*BalanceReport, error) {
	run, err := begin("balance", cfg)
	if err != nil {
		return nil, err
	}
	r := &BalanceReport{Run: run, Passes: Passes{Packets: 50_000, Rounds: 15}}
	connections := []int{1, 1000, limitConnections, 1_000_000}
	if cfg.Quick {
		r.Packets, r.Rounds, connections = 50_000, 5, []int{1, limitConnections}
	}
	return r, r.run(ctx, cfg, connections)
}

func (r *BalanceReport) run(ctx context.Context, cfg Config, connections []int) error {
	plan := passPlan{flows: "connections", packets: passPackets{service: true}, ways: func(n int) ([]passer, []passWork) {
		ways, work := balancers(), balanceWork()
		if n > limitConnections { // a lane takes gigabytes then
			ways, work = slices.DeleteFunc(ways, func(p passer) bool {
				return strings.HasPrefix(p.name, passBalance) && p.name != passBalance+"L2"
			}), work[:1]
		}
		return ways, work
	}}
	if err := r.each(ctx, cfg.Progress, connections, plan); err != nil {
		return err
	}
	for _, p := range r.Programs {
		if p.Flows == limitConnections {
			r.Budgets = append(r.Budgets, budget(fmt.Sprintf("%s, %d connections, over the empty program", p.What, p.Flows), limitBalance, p.Over.Median, "ns"))
		}
	}
	r.end()
	return nil
}

// WriteText writes the report as a text with tables.
func (r *BalanceReport) WriteText(w io.Writer) error {
	return r.writePasses(w, &r.Run, passText{
		flows: "connections",
		what:  "UDP datagrams to a service with three backends, of connections in turns; the kernel only forwards them",
	})
}

// WritePlots draws a bar for each way, with the most connections.
func (r *BalanceReport) WritePlots(dir string) error {
	return r.plot(dir, "balance", "Receiving and balancing a packet, %d connections")
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/command"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	"github.com/waymark-net/waymark/internal/order"
	"github.com/waymark-net/waymark/internal/term"
)

// ruleMonitor shows what rules do, interval by interval.
type ruleMonitor struct {
	agent   agentFlag
	out     outputFlag
	every   time.Duration
	limit   int // rules of an interval
	packets int // of a rule in an interval
	count   int // intervals; 0: until interrupted

	mu     sync.Mutex
	newest map[uint32][]*gate.Captured // by rule, the newest first
	before map[uint32]gate.Counts
	at     time.Time
}

// monitored is an interval, as JSON.
type monitored struct {
	Time    time.Time       `json:"time"`
	Seconds float64         `json:"seconds"`
	Rules   []monitoredRule `json:"rules"`
	More    int             `json:"more,omitempty"` // rules with packets that --limit leaves out
}

// monitoredRule is a rule that matched packets in the interval.
type monitoredRule struct {
	ID   uint32 `json:"id"`
	Text string `json:"text"`
	gate.Counts
	PacketRate float64          `json:"packets_per_second"`
	DropRate   float64          `json:"dropped_per_second"`
	ByteRate   float64          `json:"bytes_per_second"`
	Newest     []*gate.Captured `json:"newest"` // packets that it dropped or sampled, the newest first
}

func newRulesMonitorCommand() *cobra.Command {
	m := &ruleMonitor{newest: map[uint32][]*gate.Captured{}}
	cmd := &cobra.Command{
		Use:   "monitor",
		Short: "Show what rules do with packets, live",
		Long: `Monitor shows, every second until interrupted, the rules of the running agent that matched
packets, those that dropped most first, with rates and the newest packets that each of them
dropped or sampled. However many packets there are, an interval has at most --limit rules
with --packets packets each. Only root and the user of the agent see packets; others see rates.`,
		Example: `  waymark rules monitor
  waymark rules monitor --every 10s --packets 0
  waymark rules monitor -o jsonl | jq '.rules[] | select(.dropped > 1000)'`,
		Args: cobra.NoArgs,
		RunE: m.run,
	}
	command.DurationVar(cmd.Flags(), &m.every, "every", time.Second, "length of an interval, as a `TIME`")
	cmd.Flags().IntVarP(&m.limit, "limit", "n", 20, "show at most `N` rules of an interval")
	cmd.Flags().IntVarP(&m.packets, "packets", "p", 1, "show at most `N` packets of a rule and interval")
	cmd.Flags().IntVarP(&m.count, "count", "c", 0, "end after `N` intervals; 0: when interrupted")
	m.agent.register(cmd)
	m.out.register(cmd, outputTable, outputJSONL)
	return cmd
}

func (m *ruleMonitor) run(cmd *cobra.Command, _ []string) error {
	const least = 100 * time.Millisecond
	if m.every < least || m.limit < 1 || m.packets < 0 || m.count < 0 {
		return command.UsageErrorf("rules monitor: want --every of at least %v, --limit of at least 1, and no negative numbers", least)
	}
	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if err := m.begin(ctx); err != nil {
		return err
	}
	failed := make(chan error, 1)
	if m.packets > 0 {
		go func() { failed <- m.follow(ctx) }()
	}
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for n := 0; m.count == 0 || n < m.count; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			var refused *api.Error
			if !errors.As(err, &refused) {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "waymark: rates only: %v\n", err)
		case <-tick.C:
			n++
			err := m.show(ctx, cmd.OutOrStdout())
			if ctx.Err() != nil { // interrupted while it asked
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// follow keeps the newest packets of each rule.
func (m *ruleMonitor) follow(ctx context.Context) error {
	err := m.agent.client().Stream(ctx, gate.NotablePath, func(event json.RawMessage) error {
		var p gate.Captured
		if err := json.Unmarshal(event, &p); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, r := range []*gate.CaptureRef{p.Sampled, p.Rule} {
			if r == nil {
				continue
			}
			list := append([]*gate.Captured{&p}, m.newest[r.ID]...)
			m.newest[r.ID] = list[:min(len(list), m.packets)]
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (m *ruleMonitor) begin(ctx context.Context) error {
	list, err := m.read(ctx)
	if err != nil {
		return err
	}
	m.take(list)
	return nil
}

func (m *ruleMonitor) read(ctx context.Context) (list gate.Rules, err error) {
	return list, m.agent.client().Page(ctx, gate.RulesPath, &list)
}

// take notes the counters, and returns the rules that have more than before.
func (m *ruleMonitor) take(list gate.Rules) monitored {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	out := monitored{Time: now.UTC(), Seconds: now.Sub(m.at).Seconds(), Rules: []monitoredRule{}}
	before := m.before
	m.at, m.before = now, map[uint32]gate.Counts{}
	for _, r := range list.Rules {
		m.before[r.ID] = r.Counts
		was := before[r.ID]
		if r.Packets <= was.Packets { // or the rule is another one
			continue
		}
		d := gate.Counts{Packets: r.Packets - was.Packets, Bytes: r.Bytes - was.Bytes, Dropped: r.Dropped - was.Dropped, DroppedBytes: r.DroppedBytes - was.DroppedBytes}
		out.Rules = append(out.Rules, monitoredRule{
			ID: r.ID, Text: r.Text, Counts: d, Newest: append([]*gate.Captured{}, m.newest[r.ID]...),
			PacketRate: float64(d.Packets) / out.Seconds, DropRate: float64(d.Dropped) / out.Seconds, ByteRate: float64(d.Bytes) / out.Seconds,
		})
	}
	m.newest = map[uint32][]*gate.Captured{}
	order.By(out.Rules, func(a, b monitoredRule) int {
		return cmp.Or(cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(b.Packets, a.Packets))
	})
	if n := len(out.Rules); n > m.limit {
		out.Rules, out.More = out.Rules[:m.limit], n-m.limit
	}
	return out
}

func (m *ruleMonitor) show(ctx context.Context, w io.Writer) error {
	list, err := m.read(ctx)
	if err != nil {
		return err
	}
	out := m.take(list)
	if m.out.format == outputJSONL {
		return json.NewEncoder(w).Encode(out)
	}
	at := out.Time.Local().Format(time.TimeOnly)
	if len(out.Rules) == 0 {
		_, err := fmt.Fprintf(w, "%s  no rule matches\n", at)
		return err
	}
	for _, r := range out.Rules {
		if _, err := fmt.Fprintf(w, "%s  %6s/s  %6s/s dropped  %d: %s\n", at, term.SI(r.PacketRate), term.SI(r.DropRate), r.ID, r.Text); err != nil {
			return err
		}
		for _, p := range r.Newest {
			if _, err := fmt.Fprintf(w, "          %s %s %s\n", p.Iface, p.Verdict, packetText(packetOf(p))); err != nil {
				return err
			}
		}
	}
	if out.More > 0 {
		_, err = fmt.Fprintf(w, "%s  %s more\n", at, term.Number(uint64(out.More), "rules"))
	}
	return err
}

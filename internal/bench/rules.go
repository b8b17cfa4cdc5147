package bench

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/waymark-net/waymark/internal/gate"
)

// RulesReport is what a packet costs that the last of many rules drops.
type RulesReport struct {
	Run
	Rounds int          `json:"rounds"`
	Points []RulesCost  `json:"points"`
	Absent []AbsentTool `json:"absent"`
}

// RulesCost is one way with a number of rules, or of members of a set.
type RulesCost struct {
	What    string `json:"what"`
	Size    int    `json:"size"`
	Way     string `json:"way"`
	Packets int    `json:"packets"` // of a round
	Over    Spread `json:"over_ns"` // receiving, over a program that only drops, in the same round
	Ratio   Spread `json:"ratio"`   // receiving, over nftables in the same round
}

// What there are many of.
const (
	manyRules   = "rules"
	manyMembers = "members of a set"
)

const onlyDrops = "an XDP program that only drops, native"

// Rules measures rule sets of many sizes.
func Rules(ctx context.Context, cfg Config) (*RulesReport, error) {
	run, err := begin("rules", cfg)
	if err != nil {
		return nil, err
	}
	r := &RulesReport{Run: run, Rounds: 15}
	sizes := map[string][]int{manyRules: {1, 10, 100, 512, 1000, 10_000}, manyMembers: {10, 1000, 10_000, 100_000}}
	if cfg.Quick {
		r.Rounds = 3
		sizes = map[string][]int{manyRules: {1, 100, 1000}, manyMembers: {10, 10_000}}
	}
	for _, what := range []string{manyRules, manyMembers} {
		for _, n := range sizes[what] {
			if err := r.measure(ctx, cfg, what, n); err != nil {
				return nil, fmt.Errorf("%d %s: %w", n, what, err)
			}
		}
	}
	r.end()
	return r, nil
}

// measure has the ways take turns at one size.
func (r *RulesReport) measure(ctx context.Context, cfg Config, what string, n int) error {
	own, nft := textOfRules(n), nftStarter("", nftOfRules(n))
	if what == manyMembers {
		own = textOfSet(n)
		nft = nftStarter(nftOfSet(n), "\t\tip saddr @many drop\n")
	}
	one := &DropReport{Run: Run{Name: fmt.Sprintf("%d %s", n, what)}, Packets: 50_000, Rounds: r.Rounds}
	if what == manyRules && n > 100 { // nftables takes as long as there are rules
		one.Packets = max(10_000_000/n, 2000)
	}
	ways := []dropper{
		{name: dropSending, start: startDown},
		{name: onlyDrops, start: xdpStarter(link.XDPDriverMode)},
		{name: dropNFT, needs: "nft", start: nft},
		{name: dropWaymark, start: rulesStarter(gate.ModeNative, own)},
	}
	for i := range ways {
		ways[i].flows = manyFlows // a packet like the one before meets no rules
	}
	if err := one.measure(ctx, cfg, ways); err != nil {
		return err
	}
	r.Absent = one.Absent
	for _, c := range one.Measured {
		if c.Way == dropSending || c.Way == onlyDrops {
			continue
		}
		r.Points = append(r.Points, RulesCost{
			What: what, Size: n, Way: c.Way, Packets: one.Packets,
			Over: pairwise(one.rounds[c.Way], one.rounds[onlyDrops], minus), Ratio: c.Ratio,
		})
	}
	return nil
}

// address is one that no packet has: those of packets begin with 10.
func address(i, n int) netip.Addr {
	at := uint32(192<<24) + uint32(uint64(i)*(1<<28)/uint64(n))
	return netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)})
}

// The rules before the one that drops: each has an address, a protocol and a range of ports.
func textOfRules(n int) string {
	var b strings.Builder
	for i := range n - 1 {
		fmt.Fprintf(&b, "drop udp src %s dst port %d-%d\n", address(i, n), 20+i%30, 53+i%1000)
	}
	return b.String() + droppedRule
}

func nftOfRules(n int) string {
	var b strings.Builder
	for i := range n - 1 {
		fmt.Fprintf(&b, "\t\tip saddr %s udp dport %d-%d drop\n", address(i, n), 20+i%30, 53+i%1000)
	}
	return b.String()
}

func members(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = address(i, n).String()
	}
	return strings.Join(all, ", ")
}

func textOfSet(n int) string {
	return "set many { " + members(n) + " }\ndrop src @many\n" + droppedRule
}

func nftOfSet(n int) string {
	return "\tset many {\n\t\ttype ipv4_addr\n\t\telements = { " + members(n) + " }\n\t}\n"
}

// WriteText writes the report as a text with a table.
func (r *RulesReport) WriteText(w io.Writer) error {
	if err := r.Run.WriteText(w); err != nil {
		return err
	}
	fmt.Fprintf(w, "UDP datagrams of 1,024 flows in turns that the last rule drops, and no other; each other rule has an address, a protocol and a range of ports. %d rounds, in turns, on\n"+
		"one processor: median (lowest–highest).\n\n", r.Rounds)
	var rows [][]string
	for _, p := range r.Points {
		ratio := ""
		if p.Ratio.Median != 0 {
			ratio = p.Ratio.String()
		}
		rows = append(rows, []string{p.What, fmt.Sprint(p.Size), p.Way, fmt.Sprint(p.Packets), p.Over.String(), ratio})
	}
	err := writeTable(w, []column{
		{"many", false},
		{"size", true},
		{"dropped by", false},
		{"packets of a round", true},
		{"ns over a program that only drops", true},
		{"receiving ÷ nftables", true},
	}, rows)
	for _, a := range r.Absent {
		fmt.Fprintf(w, "\nnot measured: %s: %s\n", a.Probe, a.Why)
	}
	return err
}

// WritePlots draws both over the size.
func (r *RulesReport) WritePlots(dir string) error {
	var charts []chart
	for what, file := range map[string]string{manyRules: "rules", manyMembers: "rules-sets"} {
		c := chart{file: file, title: "Dropping a packet: " + what, y: "ns over a program that only drops", x: what}
		for _, way := range []string{dropWaymark, dropNFT} {
			s := series{name: way}
			for _, p := range r.Points {
				if p.What == what && p.Way == way {
					s.x, s.y = append(s.x, float64(p.Size)), append(s.y, p.Over)
				}
			}
			if len(s.x) > 0 {
				c.series = append(c.series, s)
			}
		}
		charts = append(charts, c)
	}
	return writeCharts(dir, charts)
}

package disk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/hops/hopstest"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/test/soak"
)

// fleet are hosts, each in memory and on disk.
type fleet struct {
	dir   string
	hosts map[string]*both
}

func (f *fleet) of(t rapid.TB, host string) *both {
	b := f.hosts[host]
	if b == nil {
		b = newBoth(t, f.dir+"/"+host)
		f.hosts[host] = b
	}
	return b
}

func (f *fleet) close(t rapid.TB) {
	for _, b := range f.hosts {
		if err := b.disk.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// both are executors over all of memory, and all of disk.
func (f *fleet) both() (memory, disk query.Fleet) {
	var names []string
	for name := range f.hosts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		memory = append(memory, query.Executor{Host: name, Sources: []query.Source{f.hosts[name].memory}})
		disk = append(disk, query.Executor{Host: name, Sources: []query.Source{f.hosts[name].disk}})
	}
	return memory, disk
}

func askFleet(t rapid.TB, f query.Fleet, p query.Plan) query.Answer {
	t.Helper()
	a, err := f.Answer(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestHostsHaveOneAnswer: random plans over random records of several hosts, which have many flows in common, have the same
// answer from disk as from memory.
func TestHostsHaveOneAnswer(t *testing.T) {
	dir := t.TempDir()
	n, shared := 0, uint64(0)
	checks(t, soak.Times(5, 300))
	rapid.Check(t, func(t *rapid.T) {
		n++
		f := fleet{fmt.Sprintf("%s/%d", dir, n), map[string]*both{}}
		defer func() { f.close(t) }()
		intervals := rapid.IntRange(1, 4).Draw(t, "intervals")
		var passed []flow.Record // that other hosts see, too
		for _, host := range []string{"alpha", "porthos", "omega"} {
			b := f.of(t, host)
			for i := range intervals {
				list := drawRecords(t)
				for k := range passed {
					passed[k].TTLMax -= uint8(rapid.IntRange(0, 1).Draw(t, "hop"))
					passed[k].Direction = flow.Direction(rapid.IntRange(0, 1).Draw(t, "direction"))
				}
				list = append(list, passed...)
				passed = list[:min(len(list), 4)]
				if b.fill(i, list...); rapid.Bool().Draw(t, "seal") {
					if err := b.disk.Seal(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		memory, disk := f.both()
		for range 20 {
			p := drawPlan(t, intervals)
			if host := rapid.SampledFrom([]string{"", "", "host", "host,proto", "host,iface", "host,pair"}).Draw(t, "by host"); host != "" {
				if p.By, _ = query.ParseBy(host); !splits(p) {
					p.Filter = filter.Filter{}
				}
			}
			want, got := askFleet(t, memory, p), askFleet(t, disk, p)
			if shared += got.Shared; got.EachHost != "" {
				t.Fatal(got.EachHost)
			}
			if diff := gocmp.Diff(want, got, sameAnswer); diff != "" {
				t.Fatalf("by %v, filter %q, sort %s, everywhere %t, step %v, sums %v (-memory +disk):\n%s", p.By.Keys, p.Filter, p.Sort, p.Everywhere, p.Step, p.Sums, diff)
			}
		}
	})
	if shared < 20 {
		t.Errorf("%d flows were seen at several hosts: this tests little", shared)
	}
}

// splits reports whether a plan's filter takes apart what is of records and what of rows.
func splits(p query.Plan) bool {
	_, _, err := p.Filter.Split(p.By.Whole())
	return err == nil
}

// index is the number of an interface of hopstest.
func index(iface string) (n uint32) {
	for _, c := range []byte(iface) {
		n = n*31 + uint32(c)
	}
	return n
}

// TestFlowsCountOnce: flows pass random networks. Totals and rows of all hosts are what the senders' interfaces counted, whatever is lost
// behind them, and each host has its own view.
func TestFlowsCountOnce(t *testing.T) {
	for seed := range uint64(soak.Times(1, 30)) {
		f := fleet{t.TempDir(), map[string]*both{}}
		sent, every, byHost := map[uint16]uint64{}, uint64(0), map[string]uint64{}
		records := map[string]map[int64][]*flow.Record{}
		r := rand.New(rand.NewPCG(seed, 11))
		for k := range uint16(20) {
			way, _ := hopstest.Draw(r)
			w := hopstest.New(r)
			w.Run(way, 1+r.IntN(300))
			for key, record := range w.Records {
				record.DstPort, record.IfIndex = 1000+k, index(key.Iface)
				if records[key.Host] == nil {
					records[key.Host] = map[int64][]*flow.Record{}
				}
				records[key.Host][key.Number] = append(records[key.Host][key.Number], record)
				if every += record.Packets; key.Iface == "br0" {
					continue
				}
				if byHost[key.Host] += record.Packets; key.Host == "alpha" {
					sent[record.DstPort] += record.Packets
				}
			}
		}
		for host, all := range records {
			f.fillHost(t, host, all)
		}
		var total uint64
		for _, n := range sent {
			total += n
		}
		memory, disk := f.both()
		for name, hosts := range map[string]query.Fleet{"memory": memory, "disk": disk} {
			for _, by := range []string{"flow", "dport", "proto", "conversation", "pair", "src/24", "service", "transit", "host", "host,dport", "host,iface", "iface", "peer"} {
				for _, p := range []query.Plan{{}, {Sums: []string{"packets"}}, {Sort: "packets", Limit: 7}, {Step: time.Minute}} {
					p.By, _ = query.ParseBy(by)
					a := askFleet(t, hosts, p)
					if a.Total.Packets != total || a.Total.Packets+a.Repeated.Packets != every || a.Shared != 20 || a.Behind+a.Unsure != 0 || a.EachHost != "" {
						t.Errorf("%s, seed %d, by %s, %+v: %d packets in total, %d repeated, %d flows; want %d of %d", name, seed, by, p, a.Total.Packets, a.Repeated.Packets, a.Shared, total, every)
					}
					if by == "dport" && p.Limit == 0 {
						for _, w := range a.Rows {
							if w.Packets > sent[w.DstPort] || p.Step == 0 && w.Packets != sent[w.DstPort] {
								t.Errorf("%s, seed %d: %d packets to port %d, want %d", name, seed, w.Packets, w.DstPort, sent[w.DstPort])
							}
						}
					}
				}
			}
			once, err := hosts.Explain(query.Plan{})
			if err != nil {
				t.Fatal(err)
			}
			if each, err := hosts.Explain(query.Plan{Everywhere: true}); err != nil || once.Records != 2*each.Records || once.Engines[0].Bytes != 2*each.Engines[0].Bytes || each.Records == 0 {
				t.Errorf("%s: %d records are read, everywhere %d: %v", name, once.Records, each.Records, err)
			}
			everywhere := askFleet(t, hosts, query.Plan{Everywhere: true})
			if everywhere.Total.Packets != every || everywhere.Shared != 0 {
				t.Errorf("%s: everywhere %d packets, want %d", name, everywhere.Total.Packets, every)
			}
			alone := askFleet(t, hosts, query.Plan{Hosts: []string{"omega"}})
			if alone.Total.Packets != byHost["omega"] {
				t.Errorf("%s: omega alone counts %d packets, want %d", name, alone.Total.Packets, byHost["omega"])
			}
		}
		f.close(t)
	}
}

// fillHost stores the records of a host by interval. Its bridge is over all other interfaces.
func (f *fleet) fillHost(t *testing.T, host string, all map[int64][]*flow.Record) {
	b := f.of(t, host)
	wiring := &flow.Wiring{Uppers: map[flow.Port][]flow.Port{}}
	var numbers []int64
	for n, list := range all {
		numbers = append(numbers, n)
		for _, r := range list {
			wiring.Uppers[flow.Port{IfIndex: r.IfIndex}] = []flow.Port{{IfIndex: index("br0")}}
		}
	}
	slices.Sort(numbers)
	b.memory.SetWiring(wiring)
	for i, n := range numbers {
		var list []flow.Record
		for _, r := range all[n] {
			list = append(list, *r)
		}
		b.fill(int(n-hopstest.Began.Unix()/10), list...)
		if i == len(numbers)/2 {
			if err := b.disk.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFurtherHostCountsMore: the sender's agent saw half of a flow. It counts there, and the answer says that there was more.
func TestFurtherHostCountsMore(t *testing.T) {
	f := fleet{t.TempDir(), map[string]*both{}}
	defer f.close(t)
	for host, packets := range map[string]uint64{"alpha": 50, "omega": 100} {
		r := flow.Record{
			Iface: "eth0", Direction: flow.Egress, Family: 4, Proto: 17, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"),
			TTLMax: 64, Counters: flow.Counters{Packets: packets}, First: at(0), Last: at(0),
		}
		if host == "omega" {
			r.Direction = flow.Ingress
		}
		f.of(t, host).fill(0, r)
	}
	memory, disk := f.both()
	for _, hosts := range []query.Fleet{memory, disk} {
		if a := askFleet(t, hosts, query.Plan{}); a.Total.Packets != 50 || a.Repeated.Packets != 100 || a.Behind != 1 {
			t.Errorf("%d packets, %d repeated, %d flows with more behind", a.Total.Packets, a.Repeated.Packets, a.Behind)
		}
	}
}

// deaf is a source that knows nothing of other hosts.
type deaf struct{ query.Source }

func (d deaf) Open() query.Engine { return struct{ query.Engine }{d.Source.Open()} }

// slow is a source of which the first pass takes all of its time.
type slow struct{ query.Source }

func (s slow) Open() query.Engine { return slowEngine{s.Source.Open()} }

type slowEngine struct{ query.Engine }

func (slowEngine) Sightings(ctx context.Context, _ *query.Plan, _ uint64, _ func([]query.Sighting) bool) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestTooManyFlows: where not all flows can be compared, each host counts its own, and the answer says so.
func TestTooManyFlows(t *testing.T) {
	f := fleet{t.TempDir(), map[string]*both{}}
	defer f.close(t)
	for host, direction := range map[string]flow.Direction{"alpha": flow.Egress, "omega": flow.Ingress} {
		b := f.of(t, host)
		var list []flow.Record
		for i := range 100 {
			list = append(list, flow.Record{
				Iface: "eth0", Direction: direction, Family: 4, Proto: 17, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), SrcPort: uint16(i),
				TTLMax: 64, Counters: flow.Counters{Packets: 1, Bytes: 100}, First: at(0), Last: at(0),
			})
		}
		b.fill(0, list...)
	}
	_, disk := f.both()
	a := askFleet(t, disk, query.Plan{Budget: query.Budget{Flows: 200}})
	if a.Total.Packets != 100 || a.EachHost != "" || a.Shared != 100 {
		t.Errorf("%d packets of %d flows, %q", a.Total.Packets, a.Shared, a.EachHost)
	}
	a = askFleet(t, disk, query.Plan{Budget: query.Budget{Flows: 199}})
	if a.Total.Packets != 200 || !strings.Contains(a.EachHost, "more flows than the 199") || a.Shared != 0 {
		t.Errorf("%d packets of %d flows, %q", a.Total.Packets, a.Shared, a.EachHost)
	}
	elsewhere := slices.Clone(disk)
	elsewhere[1].Sources = []query.Source{deaf{f.hosts["omega"].memory}}
	if a = askFleet(t, elsewhere, query.Plan{}); a.Total.Packets != 200 || !strings.Contains(a.EachHost, "records of omega are in a store that does not compare hosts (memory)") {
		t.Errorf("%d packets, %q", a.Total.Packets, a.EachHost)
	}
	elsewhere[1].Sources = []query.Source{slow{f.hosts["omega"].memory}}
	if a = askFleet(t, elsewhere, query.Plan{Budget: query.Budget{Time: time.Second}}); a.Total.Packets != 200 || a.Partial != "" || !strings.Contains(a.EachHost, "half of the time of the query (1s) was too short") {
		t.Errorf("%d packets, partial %q, %q", a.Total.Packets, a.Partial, a.EachHost)
	}
	if err := f.hosts["alpha"].disk.Seal(); err != nil {
		t.Fatal(err)
	}
	a = askFleet(t, disk, query.Plan{Budget: query.Budget{Bytes: 1}})
	if !strings.Contains(a.EachHost, "more than 1 bytes would have to be read") || a.Partial == "" {
		t.Errorf("%q, partial %q", a.EachHost, a.Partial)
	}
}

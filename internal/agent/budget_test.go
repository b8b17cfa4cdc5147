package agent

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/config"
	gateservice "github.com/waymark-net/waymark/internal/gate/service"
	pdmservice "github.com/waymark-net/waymark/internal/inband/pdm/service"
	"github.com/waymark-net/waymark/internal/kernel"
	"github.com/waymark-net/waymark/internal/memory"
)

// A limit is divided so that nothing exceeds its default, and more memory gives
// nobody less.
func TestPlanUnderLimits(t *testing.T) {
	cfg := config.Default()
	jsonl, ipfix := &config.JSONL{Path: "-", Queue: 65536}, &config.IPFIX{Queue: 65536}
	cfg.Export = []config.Export{{JSONL: jsonl}, {IPFIX: ipfix}}
	var before memory.Budget
	for _, limit := range []uint64{64e6, 80e6, 100e6, 160e6, 200e6, 256e6, 384e6, 512e6, 1e9, 4e9, 0} {
		b, err := Plan(cfg, limit)
		if err != nil {
			t.Fatalf("%d: %v", limit, err)
		}
		if limit > 0 && b.Total() > limit {
			t.Errorf("%d bytes of %d", b.Total(), limit)
		}
		for i := range before.Shares {
			if b.Shares[i].Count < before.Shares[i].Count {
				t.Errorf("%s: %d under a limit of %d, %d under one of %d", b.Shares[i].Name,
					b.Shares[i].Count, limit, before.Shares[i].Count, before.Limit)
			}
		}
		before = b
		fit := sized(cfg, &b)
		if fit.Flow.RingSize&(fit.Flow.RingSize-1) != 0 || fit.Export[1].IPFIX.Queue < 2048 || fit.Flow.MaxEntries < 2048 {
			t.Errorf("%d: %+v", limit, fit)
		}
	}
	if whole := sized(cfg, &before); whole.API.History != cfg.API.History || whole.Flow.RingSize != 4<<20 ||
		whole.Export[0].JSONL.Queue != jsonl.Queue || jsonl.Queue != 65536 {
		t.Errorf("without a limit: %+v", whole)
	}
}

// A profile sets the sizes that the configuration does not.
func TestProfile(t *testing.T) {
	cfg := config.Default()
	cfg.Profile = "small"
	cfg.Export = []config.Export{{JSONL: &config.JSONL{Queue: defaultQueue}}, {IPFIX: &config.IPFIX{Queue: 100_000}}}
	b, err := Plan(cfg, 0)
	if err != nil {
		t.Fatal(err)
	}
	fit := sized(cfg, &b)
	if fit.Flow.MaxEntries != 4096 || fit.Flow.RingSize != 256<<10 || fit.API.History != 4096 ||
		fit.Export[0].JSONL.Queue != 4096 || fit.Export[1].IPFIX.Queue != 100_000 {
		t.Errorf("%+v, %+v, %+v", fit.Flow, fit.API, fit.Export)
	}
	cfg.Flow.MaxEntries, cfg.Flow.RingSize = 10_000, 1<<20
	if b, err = Plan(cfg, 0); err != nil {
		t.Fatal(err)
	}
	if fit := sized(cfg, &b); fit.Flow.MaxEntries != 10_000 || fit.Flow.RingSize != 1<<20 {
		t.Errorf("what is set explicitly: %+v", fit.Flow)
	}
}

// What is configured beyond the default must fit, or the start is refused.
func TestPlanRefuses(t *testing.T) {
	for key, change := range map[string]func(*config.Config){
		"flow.max_entries": func(c *config.Config) { c.Flow.MaxEntries = 1_000_000 },
		"flow.ring_size":   func(c *config.Config) { c.Flow.RingSize = 256 << 20 },
		"api.history":      func(c *config.Config) { c.API.History = 1_000_000 },
		"export[0].queue":  func(c *config.Config) { c.Export = []config.Export{{JSONL: &config.JSONL{Queue: 1_000_000}}} },
		"gate.table_memory": func(c *config.Config) {
			rules := gateservice.Section.Edit(c)
			rules.Interfaces, rules.TableMemory = []string{"eth0"}, 512<<20
		},
		"pdm.state.max_entries": func(c *config.Config) {
			marking := pdmservice.Section.Edit(c)
			marking.Policies = []pdmservice.PolicyConfig{{To: "2001:db8::/32"}}
			marking.State.MaxEntries = 1_000_000
		},
	} {
		cfg := config.Default()
		change(&cfg)
		_, err := Plan(cfg, 200e6)
		if !errors.Is(err, kernel.ErrMissing) || !strings.Contains(err.Error(), "("+key+")") {
			t.Errorf("%s: %v", key, err)
		}
		if _, err := Plan(cfg, 0); err != nil {
			t.Errorf("%s without a limit: %v", key, err)
		}
	}
}

// TestTooSmallLimit: the refusal says how much is needed, and what can be done.
func TestTooSmallLimit(t *testing.T) {
	large := config.Default()
	large.Flow.MaxEntries = 4_000_000
	for want, cfg := range map[string]config.Config{
		`^too little memory: the memory limit is 20 MiB, and at least \d+ MiB are needed(, of these: [^:]*)?: raise the limit \(MemoryMax= of the service\)`:                                         config.Default(),
		`^too little memory: the memory limit is 20 MiB, and at least \d+ MiB are needed, of these: probe flow table \d+ MiB \(flow.max_entries\)[^:]*: raise the limit .*, or lower what is named$`: large,
	} {
		_, err := Plan(cfg, 20<<20)
		if small := (*memory.TooSmallError)(nil); !errors.Is(err, kernel.ErrMissing) || !errors.As(err, &small) || !regexp.MustCompile(want).MatchString(err.Error()) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

package service

import (
	"runtime"

	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/memory"
	"github.com/waymark-net/waymark/internal/stage"
)

// memoryShares are the maps. A limit lowers none of the defaults: rules that fit must fit everywhere.
func memoryShares() []stage.Memory {
	share := func(name, key string, unit uint64, size func(*Config) *uint32) stage.Memory {
		def := config.Default()
		return stage.Memory{
			Share: memory.Share{Name: name, Key: key, Unit: unit, Least: uint64(*size(Section.Edit(&def)))},
			Size:  func(c *config.Config) *uint32 { return size(Section.Edit(c)) },
		}
	}
	return []stage.Memory{
		share("addresses of packet rules", "gate.table_memory", 1, func(c *Config) *uint32 { return &c.TableMemory }),
		share("packet rules", "gate.max_rules", 100+64*uint64(runtime.NumCPU()+1), func(c *Config) *uint32 { return &c.MaxRules }),
		share("flows of dropped packets", "gate.dropped_flows", 288, func(c *Config) *uint32 { return &c.Dropped }),
		share("limits per source", "gate.sources", 16, func(c *Config) *uint32 { return &c.Sources }),
		share("bans", "gate.bans.max", 120, func(c *Config) *uint32 { return &c.Bans.Max }),
		{ // rates of sources, rows of rules
			Share: memory.Share{Name: "fixed maps of the gate", Unit: 6 << 20, Least: 1, Weight: 1},
			Size: func(*config.Config) *uint32 {
				one := uint32(1)
				return &one
			},
		},
	}
}

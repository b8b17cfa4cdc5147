package timeline

import "github.com/waymark-net/waymark/internal/config"

// Section is topology in the configuration.
var Section = config.Register(config.Section[Config]{
	Name: "topology", Doc: "what is connected with what, for waymark topology",
})

// Config bounds the topology.
type Config struct {
	Size       uint32 `yaml:"size" default:"4MiB" min:"64KiB" max:"1GiB" kind:"size" doc:"memory for versions, compressed; a file with up to twice as much is kept with the history on disk. The oldest make room"`
	Neighbours uint32 `yaml:"neighbours" default:"64" min:"1" max:"65536" doc:"neighbours shown on each interface; others are counted"`
	LLDP       string `yaml:"lldp" default:"auto" oneof:"auto never" doc:"whether announcements of neighbours (LLDP) are received, on physical interfaces and veth; auto: where the agent has CAP_NET_RAW when it starts"`
}

// Package config is the agent's configuration: YAML with a default for every
// key, overridden by WAYMARK_… variables and by flags. Unknown keys, wrong types
// and impossible values are errors that name the file and line.
package config

import "time"

// Config is the whole configuration. Field names in YAML are the tags.
type Config struct {
	Interfaces []string `yaml:"interfaces" doc:"interface names or globs to attach to"`
	Netns      []string `yaml:"netns" doc:"further network namespaces to look into, by name, or all"`
	OnMissing  string   `yaml:"on_missing" doc:"wait for an interface that does not exist yet, or fail"`
	Probe      string   `yaml:"probe" doc:"auto, ebpf, or afpacket"`
	Flow       Flow     `yaml:"flow"`
	Export     []Export `yaml:"export"`
	API        API      `yaml:"api"`
	Log        Log      `yaml:"log"`
}

// Flow configures the flow table.
type Flow struct {
	MaxEntries    uint32        `yaml:"max_entries" doc:"flows the table holds; 0: 524288, or what 1 % of memory holds if that is less"`
	ScanInterval  time.Duration `yaml:"scan_interval" doc:"time between two drains of the kernel's table"`
	ActiveTimeout time.Duration `yaml:"active_timeout" doc:"a flow that goes on is exported after this time"`
	IdleTimeout   time.Duration `yaml:"idle_timeout" doc:"a flow without packets is exported after this time"`
	Sampling      uint32        `yaml:"sampling" doc:"count one packet in N, at random"`
	Tunnels       []string      `yaml:"tunnels" doc:"tunnels whose inner flows are counted: vxlan, geneve, gre, ipip"`
	RingSize      uint32        `yaml:"ring_size" doc:"octets of the ring that takes flows evicted from a full table"`
}

// Export is one exporter; exactly one of its fields is set.
type Export struct {
	JSONL      *JSONL      `yaml:"jsonl,omitempty"`
	IPFIX      *IPFIX      `yaml:"ipfix,omitempty"`
	Prometheus *Prometheus `yaml:"prometheus,omitempty"`
}

// JSONL writes one JSON object a line.
type JSONL struct {
	Path  string `yaml:"path" doc:"file to append to; - is stdout"`
	Queue int    `yaml:"queue" doc:"records that may wait before they are dropped and counted"`
}

// IPFIX sends RFC 7011 messages to a collector.
type IPFIX struct {
	Collector         string        `yaml:"collector" doc:"udp://, tcp:// or tls:// host:port"`
	ObservationDomain uint32        `yaml:"observation_domain" doc:"observation domain id"`
	TemplateInterval  time.Duration `yaml:"template_interval" doc:"time between two sendings of the templates over UDP"`
	Biflow            bool          `yaml:"biflow" doc:"join both directions in one record (RFC 5103)"`
	MTU               int           `yaml:"mtu" doc:"largest UDP message in octets"`
	CA                string        `yaml:"ca" doc:"tls: PEM file with the collector's authority; empty: the system's"`
	Cert              string        `yaml:"cert" doc:"tls: PEM file with the client certificate"`
	Key               string        `yaml:"key" doc:"tls: PEM file with the client key"`
	Queue             int           `yaml:"queue" doc:"records that may wait before they are dropped and counted"`
}

// Prometheus serves /metrics.
type Prometheus struct {
	Listen string `yaml:"listen" doc:"host:port of the HTTP listener"`
}

// API is where the verbs of the command line reach the agent.
type API struct {
	Socket  string `yaml:"socket" doc:"path of the unix socket"`
	Listen  string `yaml:"listen" doc:"loopback host:port for HTTP; empty: none"`
	History int    `yaml:"history" doc:"records of recent intervals kept in memory for waymark flows"`
}

// Log configures stderr.
type Log struct {
	Level  string `yaml:"level" doc:"debug, info, warn or error"`
	Format string `yaml:"format" doc:"text or json"`
}

// Package config is the agent's configuration: YAML with a default for every
// key, overridden by WAYMARK_… variables and by flags. Input: files, variables and
// flags. Output: a Config, and the source of each value. Unknown keys, wrong types
// and impossible values are Problems that name file, line and column. Caller: the
// command line, which passes the Config to the agent.
//
// A key is declared once, as a struct field with tags; those of a stage in a struct of
// its own package, see Section:
//
//	yaml     its name
//	default  its default, in the form a variable would have
//	doc      one line for the reference page
//	oneof    the words allowed
//	min, max the range allowed, likewise in text
//	kind     what a text or number is: size, glob, netns, file, socket, listen, loopback, collector,
//	         broker, prefix6, proto, ports, bits, ratio, address6, speed, percent,
//	         filter
//	short    of a list of mappings: the keys whose values, joined by colons, are the short form of
//	         an entry; keys at the end may be left out
//	keyed    of a list of mappings: the key that names an entry, where the list is written as a
//	         mapping of these names
//	reload   yes: a running agent applies a change when it reloads
package config

import "time"

// Config is the whole configuration.
type Config struct {
	Interfaces []Interface `yaml:"interfaces" short:"match:direction:speed" reload:"yes" doc:"interfaces to attach to: names or globs; the first match wins. eth0:ingress is short for {match: eth0, direction: ingress}, eth0:both:1Gbit sets the speed of its link too"`
	Exclude    []string    `yaml:"exclude" kind:"glob" reload:"yes" doc:"names or globs of interfaces not to attach to; overrides interfaces"`
	Netns      []string    `yaml:"netns" kind:"netns" doc:"names of further network namespaces in which to attach, or all"`
	OnMissing  string      `yaml:"on_missing" default:"wait" oneof:"wait fail" doc:"what to do when a named interface does not exist: wait for it, or fail"`
	Probe      string      `yaml:"probe" default:"auto" oneof:"auto ebpf afpacket" doc:"probe that counts packets; auto uses ebpf if the kernel supports it"`
	Profile    string      `yaml:"profile" default:"standard" oneof:"standard small" doc:"sizes of everything that holds flows or records; small: for hosts with little memory, 4096 flows and as many records of history. Values that are set explicitly take precedence"`
	Flow       Flow        `yaml:"flow" doc:"the flow table"`
	Stages     Sections    // each under its own key, see Section
	Export     []Export    `yaml:"export" reload:"yes" doc:"exporters of flow records, one per entry"`
	History    History     `yaml:"history" doc:"records of days on disk, for waymark flows --since"`
	API        API         `yaml:"api" doc:"API for the command line"`
	Why        Why         `yaml:"why" doc:"thresholds of waymark why"`
	Log        Log         `yaml:"log" doc:"log messages on stderr"`
}

// Flow configures the flow table.
type Flow struct {
	MaxEntries    uint32        `yaml:"max_entries" default:"0" max:"67108864" doc:"capacity of the flow table; 0: 524288, or fewer if 1 % of memory or the share of a memory limit holds fewer"`
	ScanInterval  time.Duration `yaml:"scan_interval" default:"10s" min:"10ms" max:"10m" reload:"yes" doc:"time between two drains of the kernel's table"`
	ActiveTimeout time.Duration `yaml:"active_timeout" default:"60s" min:"10ms" max:"24h" reload:"yes" doc:"an active flow is exported after this time"`
	IdleTimeout   time.Duration `yaml:"idle_timeout" default:"15s" min:"10ms" max:"24h" reload:"yes" doc:"a flow without packets is exported after this time"`
	Sampling      uint32        `yaml:"sampling" default:"1" min:"1" doc:"count one packet in N, chosen at random"`
	Tunnels       []string      `yaml:"tunnels" oneof:"vxlan geneve gre ipip" doc:"tunnels whose inner flows are counted"`
	RingSize      uint32        `yaml:"ring_size" default:"0" max:"1GiB" kind:"size" doc:"size of the ring for flows evicted from the flow table or, with probe afpacket, for packets of one interface; a power of two of at least 4KiB; 0: 4MiB, with probe afpacket 16MiB, or less under a memory limit"`
}

// Export is one exporter; exactly one of its fields is set.
type Export struct {
	JSONL      *JSONL      `yaml:"jsonl,omitempty" doc:"one JSON object per line"`
	IPFIX      *IPFIX      `yaml:"ipfix,omitempty" doc:"RFC 7011 messages to a collector"`
	OTLP       *OTLP       `yaml:"otlp,omitempty" doc:"OpenTelemetry's OTLP over HTTP to a collector: records as log records, and metrics"`
	Analyzer   *Analyzer   `yaml:"analyzer,omitempty" doc:"all records of each interval to waymark analyze, which has those of many hosts"`
	ClickHouse *ClickHouse `yaml:"clickhouse,omitempty" doc:"ClickHouse over HTTP: the records of each scan interval, which waymark flows and the console then also query"`
	Kafka      *Kafka      `yaml:"kafka,omitempty" doc:"Kafka: the records of each scan interval, each interval in one transaction"`
	Prometheus *Prometheus `yaml:"prometheus,omitempty" doc:"metrics of agent, interfaces and protocols over HTTP"`
}

// Filter is the expression that chooses records for the exporter.
func (e Export) Filter() string {
	switch {
	case e.JSONL != nil:
		return e.JSONL.Filter
	case e.IPFIX != nil:
		return e.IPFIX.Filter
	case e.OTLP != nil:
		return e.OTLP.Filter
	}
	return ""
}

// Queue is where the size of the exporter's queue stands; nil: it has none.
func (e Export) Queue() *int {
	switch {
	case e.JSONL != nil:
		return &e.JSONL.Queue
	case e.IPFIX != nil:
		return &e.IPFIX.Queue
	case e.OTLP != nil && e.OTLP.Records:
		return &e.OTLP.Queue
	}
	return nil
}

// WithQueue is a copy with another size of the queue.
func (e Export) WithQueue(n int) Export {
	switch {
	case e.JSONL != nil:
		c := *e.JSONL
		c.Queue, e.JSONL = n, &c
	case e.IPFIX != nil:
		c := *e.IPFIX
		c.Queue, e.IPFIX = n, &c
	case e.OTLP != nil:
		c := *e.OTLP
		c.Queue, e.OTLP = n, &c
	}
	return e
}

// JSONL writes one JSON object a line.
type JSONL struct {
	Path   string `yaml:"path" default:"-" kind:"file" doc:"file to append to; - is stdout"`
	Filter string `yaml:"filter" kind:"filter" doc:"export only records that match this filter, such as not port 22; empty: all. The rest is counted as filtered"`
	Words  bool   `yaml:"words" default:"false" doc:"write protocols by name (tcp), not by number (6)"`
	Queue  int    `yaml:"queue" default:"65536" min:"1" max:"16777216" doc:"capacity of the queue in records; when it is full, records are dropped and counted; smaller under a memory limit"`
}

// IPFIX sends RFC 7011 messages to a collector.
type IPFIX struct {
	Collector         string        `yaml:"collector" default:"udp://127.0.0.1:4739" kind:"collector" doc:"udp://, tcp:// or tls:// host:port"`
	Filter            string        `yaml:"filter" kind:"filter" doc:"export only records that match this filter, such as not port 22; empty: all. The rest is counted as filtered"`
	ObservationDomain uint32        `yaml:"observation_domain" default:"1" doc:"observation domain id"`
	TemplateInterval  time.Duration `yaml:"template_interval" default:"60s" min:"1s" max:"24h" doc:"interval at which templates are resent over UDP"`
	Biflow            bool          `yaml:"biflow" default:"false" doc:"join both directions in one record (RFC 5103)"`
	MTU               int           `yaml:"mtu" default:"1400" min:"512" max:"65507" doc:"largest UDP message in bytes"`
	Enterprise        uint32        `yaml:"enterprise" default:"32473" min:"1" doc:"private enterprise number of Waymark's own elements; 32473 is reserved for documentation (RFC 5612)"`
	CA                string        `yaml:"ca" doc:"tls: PEM file with the CA of the collector; empty: the system's CAs"`
	Cert              string        `yaml:"cert" doc:"tls: PEM file with the client certificate"`
	Key               string        `yaml:"key" doc:"tls: PEM file with the client key"`
	Queue             int           `yaml:"queue" default:"65536" min:"1" max:"16777216" doc:"capacity of the queue in records; when it is full, records are dropped and counted; smaller under a memory limit"`
}

// OTLP sends to an OpenTelemetry collector.
type OTLP struct {
	Endpoint        string        `yaml:"endpoint" default:"http://127.0.0.1:4318" kind:"endpoint" doc:"http:// or https:// URL of the collector; /v1/logs and /v1/metrics are below it"`
	Records         bool          `yaml:"records" default:"true" doc:"send flow records as log records"`
	MetricsInterval time.Duration `yaml:"metrics_interval" default:"0s" min:"0s" max:"24h" doc:"interval at which the metrics that /metrics has are sent; 0: never"`
	HeadersFile     string        `yaml:"headers_file" doc:"file with lines such as Authorization: Bearer …, sent with each request; empty: none"`
	Compression     string        `yaml:"compression" default:"gzip" oneof:"gzip none" doc:"compression of requests"`
	Words           bool          `yaml:"words" default:"false" doc:"write protocols by name (tcp), not by number (6)"`
	CA              string        `yaml:"ca" doc:"https: PEM file with the CA of the collector; empty: the system's CAs"`
	Cert            string        `yaml:"cert" doc:"https: PEM file with the client certificate"`
	Key             string        `yaml:"key" doc:"https: PEM file with the client key"`
	Filter          string        `yaml:"filter" kind:"filter" doc:"export only records that match this filter, such as not port 22; empty: all. The rest is counted as filtered"`
	Queue           int           `yaml:"queue" default:"65536" min:"1" max:"16777216" doc:"capacity of the queue in records; when it is full, records are dropped and counted; smaller under a memory limit"`
}

// Analyzer sends intervals to waymark analyze.
type Analyzer struct {
	URL  string `yaml:"url" kind:"analyzer" doc:"https:// URL of the analyzer"`
	CA   string `yaml:"ca" doc:"PEM file with the CA of the analyzer; empty: the system's CAs"`
	Cert string `yaml:"cert" doc:"PEM file with the client certificate, which names the host"`
	Key  string `yaml:"key" doc:"PEM file with the client key"`
	Path string `yaml:"path" kind:"directory" doc:"directory for intervals that the analyzer does not have yet; empty: analyzer in $STATE_DIRECTORY, which systemd sets, else in /var/lib/waymark"`
	Size uint64 `yaml:"size" default:"256MiB" min:"1MiB" kind:"size" doc:"most that they take; beyond it the oldest are lost, and counted"`
}

// ClickHouse keeps the records of every interval.
type ClickHouse struct {
	URL          string `yaml:"url" default:"http://127.0.0.1:8123" kind:"endpoint" doc:"http:// or https:// URL at which ClickHouse answers HTTP"`
	Database     string `yaml:"database" default:"waymark" doc:"database with the tables; waymark config clickhouse prints their schema"`
	Table        string `yaml:"table" default:"flows" doc:"table of records; names of the others begin so"`
	User         string `yaml:"user" doc:"name of a user who may insert and select; empty: default"`
	PasswordFile string `yaml:"password_file" doc:"file with the password in its first line; empty: none"`
	CA           string `yaml:"ca" doc:"https: PEM file with the CA of the server; empty: the system's CAs"`
	Cert         string `yaml:"cert" doc:"https: PEM file with the client certificate"`
	Key          string `yaml:"key" doc:"https: PEM file with the client key"`
	QueuePath    string `yaml:"queue_path" kind:"directory" doc:"directory for intervals that wait to be sent; empty: clickhouse in $STATE_DIRECTORY, which systemd sets, else in /var/lib/waymark"`
	QueueSize    uint64 `yaml:"queue_size" default:"1GiB" min:"1MiB" kind:"size" doc:"most that these take; beyond it the oldest leave, and their records are counted as lost"`
}

// Kafka sends the records of every interval.
type Kafka struct {
	Brokers      []string `yaml:"brokers" kind:"broker" doc:"host:port of brokers to ask first; empty: 127.0.0.1:9092"`
	Topic        string   `yaml:"topic" default:"waymark-flows" doc:"topic of the records; it must exist"`
	ID           string   `yaml:"id" doc:"transactional id, and name of the group whose offset is the last interval; of one agent only; empty: waymark-HOST-TOPIC"`
	Format       string   `yaml:"format" default:"protobuf" oneof:"protobuf json" doc:"format of records: protobuf, a superset of goflow2's messages, or json, as the exporter jsonl has it"`
	Compression  string   `yaml:"compression" default:"zstd" oneof:"none gzip snappy lz4 zstd" doc:"compression of batches"`
	TLS          bool     `yaml:"tls" default:"false" doc:"connect by TLS"`
	CA           string   `yaml:"ca" doc:"tls: PEM file with the CA of the brokers; empty: the system's CAs"`
	Cert         string   `yaml:"cert" doc:"tls: PEM file with the client certificate"`
	Key          string   `yaml:"key" doc:"tls: PEM file with the client key"`
	SASL         string   `yaml:"sasl" default:"none" oneof:"none plain scram-sha-256 scram-sha-512" doc:"mechanism by which the agent says who it is"`
	User         string   `yaml:"user" doc:"sasl: name of the user"`
	PasswordFile string   `yaml:"password_file" doc:"sasl: file with the password in its first line"`
	Program      string   `yaml:"program" doc:"path of waymark-kafka; empty: next to waymark, or in PATH"`
	QueuePath    string   `yaml:"queue_path" kind:"directory" doc:"directory for intervals that wait to be sent; empty: kafka in $STATE_DIRECTORY, which systemd sets, else in /var/lib/waymark"`
	QueueSize    uint64   `yaml:"queue_size" default:"1GiB" min:"1MiB" kind:"size" doc:"most that these take; beyond it the oldest leave, and their records are counted as lost"`
}

// Prometheus serves /metrics.
type Prometheus struct {
	Listen string `yaml:"listen" default:"127.0.0.1:9474" kind:"listen" doc:"host:port of the HTTP listener"`
}

// API is where the verbs of the command line reach the agent.
type API struct {
	Socket  string `yaml:"socket" default:"/run/waymark/agent.sock" kind:"socket" doc:"path of the unix socket"`
	Group   string `yaml:"group" doc:"group whose members may use the socket; empty: that of the agent's process. Others, except root and the agent's user, may not"`
	Listen  string `yaml:"listen" kind:"loopback" doc:"loopback host:port for HTTP without credentials, from which every local user can read all flows; empty: none. See the section console"`
	History int    `yaml:"history" default:"131072" min:"1" max:"16777216" doc:"records of recent intervals kept in memory for waymark flows; smaller under a memory limit"`
}

// History keeps records on disk.
type History struct {
	Use  string        `yaml:"use" default:"auto" oneof:"auto always never" doc:"whether records are kept on disk; auto: unless profile is small, or the directory cannot be written; always: the agent does not start without"`
	Path string        `yaml:"path" kind:"directory" doc:"directory for the records; empty: history in $STATE_DIRECTORY, which systemd sets, else in /var/lib/waymark"`
	Size uint64        `yaml:"size" default:"1GiB" min:"16MiB" kind:"size" doc:"most that all files take; beyond half of it, old hours are reduced to their largest flows and sums, and the oldest leave"`
	Time time.Duration `yaml:"time" default:"0s" min:"0s" max:"87600h" doc:"age after which records leave, if the size has not made them leave before; 0: no limit"`
}

// Log configures stderr.
type Log struct {
	Level  string `yaml:"level" default:"info" oneof:"debug info warn error" reload:"yes" doc:"lowest severity that is logged"`
	Format string `yaml:"format" default:"text" oneof:"text json" doc:"format of messages"`
}

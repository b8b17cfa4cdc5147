package config

import (
	"cmp"
	"fmt"
	"math/bits"
	"strings"
)

// checkWhole finds what only several values together make impossible.
func checkWhole(c *Config, origins Origins) Problems {
	w := whole{origins: origins, taken: map[string]string{}}
	if size := c.Flow.RingSize; size != 0 && size < 4<<10 {
		w.complain("flow.ring_size", formatSize(uint64(size))+" is too small", "write at least 4KiB, or 0 for the default")
	} else if bits.OnesCount32(size) > 1 {
		w.complain("flow.ring_size", formatSize(uint64(c.Flow.RingSize))+" is not a power of two", "nearest: "+nearestPowers(c.Flow.RingSize))
	}
	for i, e := range c.Interfaces {
		if e.Match == "" {
			w.complain(fmt.Sprintf("interfaces[%d]", i), "an entry without match", "write match: with the name of an interface, or a glob")
		}
	}
	w.checkSections(c)
	if c.API.Listen != "" {
		w.take("api.listen", "listener "+c.API.Listen)
	}
	for i, e := range c.Export {
		key := fmt.Sprintf("export[%d]", i)
		switch {
		case e.JSONL != nil:
			w.take(key+".jsonl.path", "file "+e.JSONL.Path)
		case e.IPFIX != nil:
			c := e.IPFIX
			w.checkTLS(key+".ipfix", end{"collector", c.Collector, "tls://"}, c.CA, c.Cert, c.Key)
		case e.OTLP != nil:
			c := e.OTLP
			w.checkTLS(key+".otlp", end{"endpoint", c.Endpoint, "https://"}, c.CA, c.Cert, c.Key)
			if !c.Records && c.MetricsInterval == 0 {
				w.complain(key+".otlp.records", "neither records nor metrics are sent", "set records: true, or metrics_interval")
			}
		case e.Analyzer != nil:
			w.checkAnalyzer(key+".analyzer", e.Analyzer)
		case e.ClickHouse != nil:
			c := e.ClickHouse
			w.checkTLS(key+".clickhouse", end{"url", c.URL, "https://"}, c.CA, c.Cert, c.Key)
			w.takeQueue(key+".clickhouse.queue_path", c.QueuePath, "clickhouse")
		case e.Kafka != nil:
			w.checkKafka(key+".kafka", e.Kafka)
		case e.Prometheus != nil:
			w.take(key+".prometheus.listen", "listener "+e.Prometheus.Listen)
		}
	}
	return w.problems
}

type whole struct {
	origins  Origins
	taken    map[string]string // what only one may have, and the key that has it
	problems Problems
}

func (w *whole) complain(key, what, allowed string) {
	w.problems = append(w.problems, Problem{At: w.origins.at(key), Key: key, What: what, Allowed: allowed})
}

// take refuses a second user of what only one may have.
func (w *whole) take(key, what string) {
	if first, ok := w.taken[what]; ok && !strings.HasSuffix(what, ":0") {
		w.complain(key, what+" is already in use", fmt.Sprintf("used by %s at %s", first, w.origins.at(first)))
		return
	}
	w.taken[what] = key
}

// takeQueue is take for the directory of a queue; by default it has the name of its exporter.
func (w *whole) takeQueue(key, path, name string) {
	w.take(key, "directory "+cmp.Or(path, name+" in $STATE_DIRECTORY"))
}

func (w *whole) checkAnalyzer(key string, c *Analyzer) {
	w.takeQueue(key+".path", c.Path, "analyzer")
	for _, f := range []struct{ name, value, write string }{
		{"url", c.URL, "write it like https://analyzer.example:8476"},
		{"cert", c.Cert, "write the file with the certificate of this host (waymark join makes one)"},
		{"key", c.Key, "write the file with its key (waymark join makes one)"},
	} {
		if f.value == "" {
			w.complain(key, f.name+" is missing", f.write)
		}
	}
}

func (w *whole) checkKafka(key string, c *Kafka) {
	w.takeQueue(key+".queue_path", c.QueuePath, "kafka")
	for _, f := range []struct{ name, value string }{{"ca", c.CA}, {"cert", c.Cert}, {"key", c.Key}} {
		if f.value != "" && !c.TLS {
			w.complain(key+"."+f.name, "the brokers are not reached by TLS", "write tls: true, or remove the key")
		}
	}
	w.checkPair(key, c.Cert, c.Key)
	for _, f := range []struct{ name, value string }{{"user", c.User}, {"password_file", c.PasswordFile}} {
		switch {
		case f.value != "" && c.SASL == "none":
			w.complain(key+"."+f.name, "no mechanism is set", "set sasl to one, or remove the key")
		case f.value == "" && c.SASL != "none":
			w.complain(key+".sasl", f.name+" is missing", "write "+f.name+", or sasl: none")
		}
	}
}

// end is the other end of a connection: its key, its URL, and how this begins for TLS.
type end struct{ key, url, scheme string }

func (w *whole) checkTLS(key string, to end, ca, cert, private string) {
	isTLS := strings.HasPrefix(to.url, to.scheme)
	for _, f := range []struct{ name, value string }{{"ca", ca}, {"cert", cert}, {"key", private}} {
		if f.value != "" && !isTLS {
			w.complain(key+"."+f.name, "the collector "+to.url+" is not reached by TLS", "write "+to.scheme+" in "+to.key+", or remove the key")
		}
	}
	if isTLS {
		w.checkPair(key, cert, private)
	}
}

func (w *whole) checkPair(key, cert, private string) {
	if (cert == "") == (private == "") {
		return
	}
	given, lacking := "cert", "key"
	if cert == "" {
		given, lacking = lacking, given
	}
	w.complain(key+"."+given, lacking+" is missing", "a client certificate needs both cert and key")
}

// nearestPowers names the powers of two around n.
func nearestPowers(n uint32) string {
	low := uint64(1) << (bits.Len32(n) - 1)
	return formatSize(low) + " and " + formatSize(low*2)
}

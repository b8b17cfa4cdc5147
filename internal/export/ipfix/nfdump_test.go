package ipfix

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// nfdumpSays runs nfcapd and returns what nfdump reads from its file: records as
// JSON and in its long text form, both in the order of arrival.
func nfdumpSays(t *testing.T, set func(*Config), records []flow.Record) (objects []map[string]any, texts []string) {
	t.Helper()
	need(t, "nfcapd", "nfdump")
	ns, dir := labtest.UpHost(t), t.TempDir()
	_, stop := startIn(t, ns, dir, "nfcapd", "-w", dir, "-b", "127.0.0.1", "-p", "4739", "-t", "3600")
	e := newExporter(t, set)
	e.now = time.Now
	exportIn(t, ns, e, records)
	await.Success(t, func() error { return queueEmpty(ns, 4739) })
	log := stop()
	for _, complaint := range []string{"error", "Error", "invalid", "Zero"} {
		for line := range strings.Lines(log) {
			if strings.Contains(line, complaint) && !strings.Contains(line, "Sequence Errors") {
				t.Errorf("nfcapd complains: %s", line)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "nfcapd.2*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %q: %v; nfcapd said: %s", files, err, log)
	}
	list := fmt.Sprintf("[%s]", nfdump(t, files[0], "json")) // -q leaves the brackets out
	if err := json.Unmarshal([]byte(list), &objects); err != nil {
		t.Fatal(err)
	}
	texts = strings.Split(string(nfdump(t, files[0], "raw")), "Flow Record:")[1:]
	return objects, texts
}

// queueEmpty says whether the collector on a UDP port has read all that came.
func queueEmpty(ns *lab.Host, port int) error {
	return ns.Do(func() error {
		table, err := os.ReadFile("/proc/thread-self/net/udp")
		if err != nil {
			return err
		}
		// Local address, remote address, state, transmit and receive queue.
		m := regexp.MustCompile(fmt.Sprintf(`: [0-9A-F]{8}:%04X \S+ \S+ [0-9A-F]{8}:([0-9A-F]{8})`, port)).FindSubmatch(table)
		if m == nil || string(m[1]) != "00000000" {
			return fmt.Errorf("port %d is closed, or bytes %s are unread", port, m)
		}
		return nil
	})
}

func nfdump(t *testing.T, file, format string) []byte {
	t.Helper()
	cmd := exec.Command("nfdump", "-r", file, "-o", format, "-q")
	cmd.Env = append(cmd.Environ(), "TZ=UTC")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nfdump: %v: %s", err, out)
	}
	return out
}

const (
	nfdumpMust     = "direction proto vlan tos packets bytes end_reason iface"
	nfdumpAttached = " src dst"
)

// nfdumpFlow reads a record. Times are apart, as nfdump keeps milliseconds.
func nfdumpFlow(v map[string]any, text string) said {
	s := said{}
	for theirs, ours := range map[string]string{
		"proto": "proto", "src_port": "sport", "dst_port": "dport", "icmp_type": "icmp_type", "icmp_code": "icmp_code",
		"src_tos": "tos", "in_packets": "packets", "in_bytes": "bytes", "src_vlan": "vlan",
		"src4_addr": "src", "dst4_addr": "dst", "src6_addr": "src", "dst6_addr": "dst", "ingress_vrf": "", "direction": "",
	} {
		if value, ok := v[theirs]; ok && ours != "" {
			if n, number := value.(float64); number {
				value = int64(n)
			}
			s[ours] = fmt.Sprint(value)
		}
	}
	s["direction"] = enum(fieldValues("direction"), fmt.Sprint(v["direction"]))
	if m := regexp.MustCompile(`(?m)^ +end reason += +0x0(\d)`).FindStringSubmatch(text); m != nil {
		s["end_reason"] = enum(fieldValues("end_reason"), m[1])
	}
	// The descriptions that go with ingressInterface and egressInterface.
	way, other := "in", "out"
	if s["direction"] == flow.Egress.String() {
		way, other = other, way
	}
	for name, way := range map[string]string{"iface": way, "other_iface": other} {
		if m := regexp.MustCompile(`(?m)^ +` + way + `put += +[1-9]\d* (\S+)`).FindStringSubmatch(text); m != nil {
			s[name] = m[1]
		}
	}
	return s
}

// nfdumpFlags is how nfdump shows the low eight flags.
func nfdumpFlags(flags uint16) string {
	b := []byte("CEUAPRSF")
	for i := range b {
		if flags&(0x80>>i) == 0 {
			b[i] = '.'
		}
	}
	return string(b)
}

func nfdumpAgrees(t *testing.T, r flow.Record, v map[string]any, text string) {
	t.Helper()
	must := nfdumpMust
	switch {
	case r.Unattributed:
	case r.ICMP():
		must += nfdumpAttached + " icmp_type icmp_code"
	default:
		must += nfdumpAttached + " sport dport"
	}
	if r.Other != "" {
		must += " other_iface"
	}
	s := nfdumpFlow(v, text)
	if r.Unattributed { // nfdump shows ports that are not there
		delete(s, "sport")
		delete(s, "dport")
	}
	agree(t, origin, r, s, must)
	const milliseconds = "2006-01-02T15:04:05.000"
	if v["first"] != r.First.Format(milliseconds) || v["last"] != r.Last.Format(milliseconds) {
		t.Errorf("record of %d packets: from %v to %v, want %v to %v", r.Packets, v["first"], v["last"], r.First, r.Last)
	}
	if got := v["tcp_flags"]; !r.ICMP() && got != nfdumpFlags(r.TCPFlags) {
		t.Errorf("record of %d packets: flags %v, want %s", r.Packets, got, nfdumpFlags(r.TCPFlags))
	}
}

func TestNfdump(t *testing.T) {
	records := judged()
	objects, texts := nfdumpSays(t, nil, records)
	if len(objects) != len(records) || len(texts) != len(records) {
		t.Fatalf("nfdump has %d records, want %d", len(objects), len(records))
	}
	for i, r := range records {
		nfdumpAgrees(t, r, objects[i], texts[i])
	}
}

func TestNfdumpBiflow(t *testing.T) {
	records := judged()
	const conversations = 4
	objects, texts := nfdumpSays(t, func(c *Config) { c.Biflow = true }, records)
	if len(objects) != len(records)-conversations {
		t.Fatalf("nfdump has %d records, want %d", len(objects), len(records)-conversations)
	}
	for i := range objects {
		if i >= conversations {
			nfdumpAgrees(t, records[conversations+i], objects[i], texts[i])
			continue
		}
		forth, back := records[2*i], records[2*i+1]
		nfdumpAgrees(t, forth, objects[i], texts[i])
		if p, b := objects[i]["out_packets"], objects[i]["out_bytes"]; p != float64(back.Packets) || b != float64(back.Bytes) {
			t.Errorf("conversation of %d packets: %v packets and %v bytes back, want %d and %d", forth.Packets, p, b, back.Packets, back.Bytes)
		}
		if !strings.Contains(texts[i], "initiator") {
			t.Errorf("conversation of %d packets has no direction: %s", forth.Packets, texts[i])
		}
	}
}

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// record is a line of the JSON exporter, read as a user's program would.
type record struct {
	Host      string    `json:"host"`
	Iface     string    `json:"iface"`
	Netns     string    `json:"netns"`
	Direction string    `json:"direction"`
	Family    int       `json:"family"`
	Proto     int       `json:"proto"`
	Src       string    `json:"src"`
	Dst       string    `json:"dst"`
	Sport     int       `json:"sport"`
	Dport     int       `json:"dport"`
	TCPFlags  int       `json:"tcp_flags"`
	Packets   uint64    `json:"packets"`
	Bytes     uint64    `json:"bytes"`
	WireBytes uint64    `json:"wire_bytes"`
	Payload   uint64    `json:"payload_bytes"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
	EndReason string    `json:"end_reason"`

	Initiator   string `json:"initiator"`
	InitiatorBy string `json:"initiator_by"`

	Unattributed bool `json:"unattributed"`
}

// amount is what can be summed over records.
type amount struct{ Packets, Bytes, WireBytes uint64 }

func (a *amount) add(r *record) {
	a.Packets += r.Packets
	a.Bytes += r.Bytes
	a.WireBytes += r.WireBytes
}

// readLines reads what the JSON exporter wrote; every line is whole.
func readLines(t *testing.T, path string) []record {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parseLines(t, string(b))
}

// readWholeLines is readLines while the last line may be under way.
func readWholeLines(t *testing.T, path string) []record {
	t.Helper()
	text := readText(t, path)
	return parseLines(t, text[:strings.LastIndexByte(text, '\n')+1])
}

func parseLines(t *testing.T, text string) []record {
	t.Helper()
	if text != "" && !strings.HasSuffix(text, "\n") {
		t.Error("the last line has no end")
	}
	var records []record
	for line := range strings.Lines(text) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in the line %q", err, line)
		}
		records = append(records, r)
	}
	return records
}

// sum adds up what keep wants.
func sum(records []record, keep func(*record) bool) (a amount) {
	for i := range records {
		if keep(&records[i]) {
			a.add(&records[i])
		}
	}
	return a
}

// counters are an interface's own.
type counters struct{ rx, tx amount }

// readCounters asks ip(8).
func readCounters(t *testing.T, h *lab.Host, iface string) counters {
	t.Helper()
	type side struct{ Packets, Bytes uint64 }
	var links []struct {
		Stats64 struct{ Rx, Tx side }
	}
	if err := json.Unmarshal([]byte(must(t, h, "ip", "-j", "-s", "link", "show", "dev", iface)), &links); err != nil {
		t.Fatal(err)
	}
	s := links[0].Stats64
	return counters{
		rx: amount{Packets: s.Rx.Packets, WireBytes: s.Rx.Bytes},
		tx: amount{Packets: s.Tx.Packets, WireBytes: s.Tx.Bytes},
	}
}

// flowAmount is what nfdump knows of a record.
type flowAmount struct {
	Direction int    `json:"direction"`
	Proto     int    `json:"proto"`
	Packets   uint64 `json:"in_packets"`
	Bytes     uint64 `json:"in_bytes"`
}

// collector is nfcapd.
type collector struct {
	*process
	dir string
}

// newCollector starts nfcapd on a host; it listens when newCollector returns.
func newCollector(t *testing.T, h *lab.Host, address string) *collector {
	t.Helper()
	c := &collector{dir: t.TempDir()}
	c.process = spawn(t, h, command("nfcapd", "-w", c.dir, "-b", address, "-p", "4739", "-t", "3600", "-B", "1000000"))
	await.Success(t, func() error {
		if !strings.Contains(must(t, h, "ss", "-lunH"), ":4739") {
			return notYet("nfcapd does not listen")
		}
		return nil
	})
	return c
}

// records ends the collector and reads what it stored.
func (c *collector) records(t *testing.T, h *lab.Host) (out []flowAmount) {
	t.Helper()
	await.Success(t, func() error {
		if queue := strings.Fields(must(t, h, "ss", "-lunH", "sport = :4739")); queue[1] != "0" {
			return notYet("%s bytes unread", queue[1])
		}
		return nil
	})
	c.signal(interrupt)
	c.wait(t)
	files, err := filepath.Glob(filepath.Join(c.dir, "nfcapd.2*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files %q: %v; nfcapd said: %s", files, err, c.stderr)
	}
	for _, file := range files { // it begins another one at each full hour
		// With -q, nfdump leaves the brackets out.
		list := "[" + must(t, nil, "nfdump", "-r", file, "-o", "json", "-q") + "]"
		var some []flowAmount
		if err := json.Unmarshal([]byte(list), &some); err != nil {
			t.Fatal(err)
		}
		out = append(out, some...)
	}
	return out
}

package e2e

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/test/await"
)

// oneLink is a host with a link on which nothing moves but what a test sends.
func oneLink(t *testing.T) *lab.Host {
	t.Helper()
	h := labtest.NewHost(t)
	must(t, h, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
	addLink(t, h, "near")
	must(t, h, "ip", "link", "set", "lo", "up")
	return h
}

// sendFlows has flows of one packet each arrive on the link of oneLink.
func sendFlows(t *testing.T, h *lab.Host, from, count int) {
	t.Helper()
	frames := make([][]byte, count)
	for i := range frames {
		frames[i] = udpFrame(from + i)
	}
	if err := labtest.NewSender(t, h, "nearp").Send(frames...); err != nil {
		t.Fatal(err)
	}
}

// exporter is the account of one exporter.
func (a *agent) exporter(t *testing.T, name string) obs.Exporter {
	t.Helper()
	for _, e := range a.status(t).Exporters {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("no exporter %s", name)
	return obs.Exporter{}
}

// lost sums losses and names their reasons.
func lost(e obs.Exporter) (n uint64, reasons string) {
	for _, l := range e.Lost {
		n += l.Count
		reasons += l.Where + " " + l.Reason + " "
	}
	return n, reasons
}

// counts waits until so many packets are in flows: the drain goes on.
func (a *agent) counts(t *testing.T, packets uint64) {
	t.Helper()
	await.Success(t, func() error {
		var got uint64
		for _, total := range a.status(t).Totals {
			got += total.Packets
		}
		if got < packets {
			return notYet("%d of %d packets in flows", got, packets)
		}
		return nil
	})
}

// smallQueue ends flows at once and holds few records for an exporter.
const smallQueue = "flow: {max_entries: 16384, scan_interval: 20ms, idle_timeout: 20ms}\ninterfaces: [near]\n"

// TestFullDisk: what does not fit is counted, lines stay whole, and writing goes
// on when there is room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 48<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(disk, "flows.jsonl")
	a := start(t, setup{host: h, config: smallQueue + "export: [{jsonl: {path: " + file + ", queue: 50}}]\n"})
	const rounds, flows = 20, 20
	for i := range rounds {
		sendFlows(t, h, 1000+flows*i, flows)
		a.counts(t, uint64(flows*(i+1)))
	}
	e := a.exporter(t, "jsonl")
	if n, reasons := lost(e); n == 0 || !strings.Contains(reasons, "queue_full") || !strings.Contains(e.LastError, "no space left") {
		t.Errorf("on a full disk: lost %d (%s), %q", n, reasons, e.LastError)
	}
	if !strings.Contains(a.stderr.String(), "no space left") {
		t.Error("the log says nothing")
	}
	shown := a.ask(t, "status")
	if !strings.Contains(shown.stdout, "queue_full") || !strings.Contains(shown.stdout, "no space left") {
		t.Errorf("status does not show it:\n%s", shown.stdout)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	await.Success(t, func() error {
		if e := a.exporter(t, "jsonl"); e.LastError != "" || e.Queued != 0 {
			return notYet("%d records wait: %s", e.Queued, e.LastError)
		}
		return nil
	})
	sendFlows(t, h, 9000, flows)
	a.counts(t, flows*(rounds+1))
	await.Success(t, func() error {
		e := a.exporter(t, "jsonl")
		n, _ := lost(e)
		if e.Exported+n != flows*(rounds+1) {
			return notYet("%d exported, %d lost of %d", e.Exported, n, flows*(rounds+1))
		}
		return nil
	})
	e = a.exporter(t, "jsonl")
	a.stop(t)
	records := readLines(t, file)
	if uint64(len(records)) != e.Exported {
		t.Errorf("%d lines, %d exported", len(records), e.Exported)
	}
	ports := map[int]bool{}
	for _, r := range records {
		if ports[r.Dport] {
			t.Errorf("the flow to port %d is there twice", r.Dport)
		}
		ports[r.Dport] = true
	}
	if !ports[9000] || !ports[1000] {
		t.Error("the first flow or the last is not there")
	}
}

// TestClosedPipe: `waymark run … | head -1`.
func TestClosedPipe(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := command("head", "-1")
	cmd.Stdin = r
	head := spawn(t, nil, cmd)
	s := setup{host: h, config: smallQueue + "export: [{jsonl: {}}, {jsonl: {path: DIR/flows.jsonl}}]\n"}
	a, ready := launchTo(t, s, w)
	w.Close()
	r.Close()
	<-ready
	const flows = 50
	sendFlows(t, h, 1000, 1)
	if code := head.wait(t); code != 0 {
		t.Fatalf("head: exit code %d", code)
	}
	parseLines(t, head.stdout.String())
	sendFlows(t, h, 2000, flows)
	await.Success(t, func() error {
		n, reasons := lost(a.exporter(t, "jsonl"))
		if n != flows || !strings.Contains(reasons, "gone") {
			return notYet("lost %d (%s), want %d", n, reasons, flows)
		}
		return nil
	})
	a.stop(t)
	if n := len(readLines(t, a.path("flows.jsonl"))); n != flows+1 {
		t.Errorf("the other exporter has %d records, want %d", n, flows+1)
	}
}

// ipfixSink is a collector over TCP that checks the framing of RFC 7011,
// section 3.1, and counts data records by the sequence number of the exporter.
type ipfixSink struct {
	net.Listener
	messages, connections atomic.Int64
	failed                chan error
}

func newSink(t *testing.T, h *lab.Host, address string) *ipfixSink {
	t.Helper()
	s := &ipfixSink{failed: make(chan error, 1)}
	if err := h.Do(func() (err error) {
		s.Listener, err = net.Listen("tcp", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := s.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			go s.read(conn)
		}
	}()
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *ipfixSink) read(conn net.Conn) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for first := true; ; first = false {
		var header [16]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint16(header[2:]))
		if version := binary.BigEndian.Uint16(header[:]); version != 10 || length < 20 {
			s.fail(fmt.Errorf("version %d, length %d", version, length))
			return
		}
		body := make([]byte, length-len(header))
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		if set := binary.BigEndian.Uint16(body); first && set != 2 && set != 3 { // templates, options templates
			s.fail(fmt.Errorf("a connection begins with set %d: without templates nothing can be read", set))
			return
		}
		s.messages.Add(1)
	}
}

func (s *ipfixSink) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// TestDeadCollector: one that refuses, one that takes the connection and never
// reads, and one that comes back. Flows are counted and shown all the while,
// losses are reported by reason, and the agent ends in time.
func TestDeadCollector(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	// Small buffers are full soon.
	must(t, h, "sysctl", "-qw", "net.ipv4.tcp_wmem=4096 4096 4096", "net.ipv4.tcp_rmem=4096 4096 4096")
	// Accepted by the kernel, read by nobody.
	var silent net.Listener
	if err := h.Do(func() (err error) {
		silent, err = net.Listen("tcp", "127.0.0.1:4741")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	a := start(t, setup{host: h, config: smallQueue + `
export:
- ipfix: {collector: "tcp://127.0.0.1:4740", queue: 100}
- ipfix: {collector: "tcp://127.0.0.1:4741", queue: 100}
- ipfix: {collector: "tcp://192.0.2.1:4742", queue: 100}
- otlp: {endpoint: "http://127.0.0.1:4743", queue: 100}
- otlp: {endpoint: "http://127.0.0.1:4741", queue: 100}
- jsonl: {path: DIR/flows.jsonl}
`})
	var sent uint64
	for range 4 {
		sendFlows(t, h, 1000, 2000)
		sent += 2000
		a.counts(t, sent)
	}
	for _, c := range []struct{ exporter, what, reason, says string }{
		{"ipfix", "a collector that refuses", "queue_full", "refused"},
		{"ipfix-2", "a collector that never reads", "queue_full", ""},
		{"ipfix-3", "a collector that nobody reaches", "", "4742"},
		{"otlp", "an OTLP collector that refuses", "queue_full", "start a collector there"},
		{"otlp-2", "an OTLP collector that never answers", "queue_full", ""},
	} {
		await.Success(t, func() error {
			e := a.exporter(t, c.exporter)
			if n, reasons := lost(e); n == 0 || !strings.Contains(reasons, c.reason) || !strings.Contains(e.LastError, c.says) {
				return notYet("%s: lost %d (%s), %q", c.what, n, reasons, e.LastError)
			}
			return nil
		})
	}
	sink := newSink(t, h, "127.0.0.1:4740")
	await.Success(t, func() error {
		e := a.exporter(t, "ipfix")
		if e.Exported == 0 || e.LastError != "" {
			return notYet("the collector is back: %+v", e)
		}
		return nil
	})
	exported := a.exporter(t, "ipfix").Exported
	sendFlows(t, h, 5000, 10)
	await.Success(t, func() error {
		if e := a.exporter(t, "ipfix"); e.Exported < exported+10 {
			return notYet("%+v", e)
		}
		return nil
	})
	await.Success(t, func() error {
		if sink.messages.Load() == 0 {
			return notYet("no message came")
		}
		return nil
	})
	a.stop(t)
	select {
	case err := <-sink.failed:
		t.Error(err)
	default:
	}
	if n := len(readLines(t, a.path("flows.jsonl"))); uint64(n) < 2000 {
		t.Errorf("the file has %d records", n)
	}
}

// TestSecondSignal: who cannot wait for a collector that hangs need not. Signals
// within a second of the first are the same request to stop.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	h := oneLink(t)
	a := start(t, setup{host: h, config: smallQueue + `
export: [{ipfix: {collector: "tcp://127.0.0.1:4740"}}]
log: {format: json}
`})
	sendFlows(t, h, 1000, 10)
	a.counts(t, 10)
	began := time.Now()
	await.Success(t, func() error {
		select {
		case <-a.ended:
			return nil
		default:
			a.signal(unix.SIGTERM)
			return notYet("it goes on after %v", time.Since(began))
		}
	})
	if took := time.Since(began); took < time.Second {
		t.Errorf("it was forced to end after %v, as if repeated signals were several", took)
	}
	if code := a.wait(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(a.stderr.String()) {
		var message struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &message); err != nil || message.Level == "" || message.Msg == "" {
			t.Errorf("no message in JSON: %q: %v", line, err)
		}
	}
	if !strings.Contains(a.stderr.String(), "second stop signal") {
		t.Errorf("it does not report the second signal: %s", a.stderr)
	}
	if got := attached(t, h); got != "" {
		t.Errorf("left: %s", got)
	}
}

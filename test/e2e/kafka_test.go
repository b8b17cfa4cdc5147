package e2e

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/kafka"
	"github.com/waymark-net/waymark/test/soak"
)

// TestKafka: what an agent counted is in Kafka once, though the agent was killed while Kafka was away, and again and again while it sent.
func TestKafka(t *testing.T) {
	t.Parallel()
	broker := kafka.New(t)
	_, alpha, beta := newLab(t)
	must(t, alpha, "ip", "link", "set", "lo", "up")
	broker.In = alpha.Do
	broker.Again(t)
	broker.Create(t, "flows")
	broker.Kill()
	queue := filepath.Join(t.TempDir(), "queue")
	config := quick + "interfaces: [" + alpha.Interfaces[0].Name + "]\nhistory: {use: never}\nexport:\n" +
		"- kafka: {brokers: ['" + broker.Plain + "'], topic: flows, format: json, queue_path: " + queue + "}\n"
	a := start(t, setup{host: alpha, config: config})
	const packets = 3000
	sendDatagrams(t, beta, alpha, packets)
	await.True(t, "an error that says what to do", func() bool { return strings.Contains(a.exporter(t, "kafka").LastError, "start Kafka there") })
	awaitQueued(t, a, queue, packets)
	a.kill()
	broker.Again(t)
	for range soak.Times(3, 10) {
		a = start(t, setup{host: alpha, config: config})
		await.True(t, "an interval to be sent", func() bool { e := a.exporter(t, "kafka"); return e.Exported > 0 || e.QueuedBytes == 0 })
		a.kill()
	}
	a = start(t, setup{host: alpha, config: config})
	await.True(t, "all to be sent", func() bool {
		e := a.exporter(t, "kafka")
		return e.LastError == "" && e.Queued == 0 && len(intervals(queue)) <= 1 // the next one
	})
	a.stop(t)
	var text strings.Builder
	seen := map[string]bool{}
	for _, r := range broker.Read(t, "flows") {
		if seen[string(r.Value)] {
			t.Errorf("twice: %s", r.Value)
		}
		seen[string(r.Value)] = true
		text.Write(append(r.Value, '\n'))
	}
	if got := sum(parseLines(t, text.String()), ofDatagrams); got.Packets != packets {
		t.Errorf("%d packets, want %d", got.Packets, packets)
	}
}

// sendDatagrams sends so many.
func sendDatagrams(t *testing.T, from, to *lab.Host, count int) {
	t.Helper()
	if _, err := traffic.Datagrams(t.Context(), from, to, traffic.DatagramConfig{To: netip.AddrPortFrom(to.Addr4(), 0), Count: count, Size: 100, Flows: 30}); err != nil {
		t.Fatal(err)
	}
}

func ofDatagrams(r *record) bool { return r.Direction == "ingress" && r.Proto == 17 }

func intervals(queue string) []string {
	list, _ := filepath.Glob(filepath.Join(queue, "*.interval"))
	return list
}

// awaitQueued waits until so many datagrams are in intervals in the queue: two more have been written since the agent showed them.
func awaitQueued(t *testing.T, a *agent, queue string, packets uint64) {
	t.Helper()
	await.Success(t, func() error {
		q := a.ask(t, "flows", "udp and direction ingress", "--by", "proto", "-o", "json")
		var got struct{ Rows []amount }
		if err := json.Unmarshal([]byte(q.stdout), &got); err != nil || len(got.Rows) != 1 || got.Rows[0].Packets != packets {
			return notYet("%v: %s%s", err, q.stdout, q.stderr)
		}
		return nil
	})
	shown := len(intervals(queue))
	await.True(t, "them on disk", func() bool { return len(intervals(queue)) >= shown+2 })
}

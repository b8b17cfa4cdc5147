package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/export/kafka"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/built"
	broker "github.com/waymark-net/waymark/test/kafka"
	"github.com/waymark-net/waymark/test/soak"
)

var origin = flow.Origin{Host: "athos", Sampling: 1}

// TestKafka has one broker, as it takes seconds to start.
func TestKafka(t *testing.T) {
	b := broker.Start(t, "protobuf", "json", "restart", "killed", "fenced", "secure", "again")
	s := &scene{Broker: b, program: filepath.Join(filepath.Dir(built.Waymark(t)), kafka.Program)}
	t.Run("records", s.testRecords)
	t.Run("errors", s.testErrors)
	t.Run("secure", s.testSecure)
	t.Run("large", s.testLarge)
	t.Run("again", s.testAgain)
	t.Run("fenced", s.testFenced)
	t.Run("killed", s.testKilled)
	t.Run("restart", s.testRestart)
}

type scene struct {
	*broker.Broker
	program string
}

func (s *scene) config(t *testing.T, topic string) kafka.Config {
	c := kafka.Default()
	c.Brokers, c.Topic, c.Format, c.Program, c.QueuePath, c.Pause = []string{s.Plain}, topic, "json", s.program, t.TempDir(), 10*time.Millisecond
	return c
}

// agent is an exporter with what feeds it.
type agent struct {
	*kafka.Exporter
	store   *store.Store
	log     await.Text
	records uint64 // that were counted
	end     func()
}

func newAgent(t *testing.T, cfg kafka.Config) *agent {
	t.Helper()
	a := &agent{store: store.New(store.Default())}
	var err error
	if a.Exporter, err = kafka.New(cfg, origin, slog.New(slog.NewTextHandler(&a.log, &slog.HandlerOptions{Level: slog.LevelDebug}))); err != nil {
		t.Fatal(err)
	}
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	a.end = sync.OnceFunc(func() {
		cancel()
		if err := await.Signal(t, "the end of the exporter", ended); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.end)
	a.store.OnEnd(a.Append)
	return a
}

// fill ends an interval with records; each has another number of packets.
func (a *agent) fill(records int) {
	now := time.Now()
	iv := a.store.Begin(now)
	for range records {
		a.records++
		iv.Add(&flow.Record{
			Iface: "eth0", IfIndex: 2, Family: 4, Proto: 6, Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"),
			SrcPort: uint16(a.records), DstPort: 443, Counters: flow.Counters{Packets: a.records, Bytes: 100}, First: now, Last: now,
		})
	}
	iv.End(now.Add(time.Second))
}

// sent waits for an empty queue.
func (a *agent) sent(t *testing.T) {
	t.Helper()
	await.Success(t, func() error {
		if s := a.Status(); s.Queued > 0 || s.QueuedBytes > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// once reports records, of JSON, that are not there, or twice.
func (s *scene) once(t *testing.T, topic string, want uint64) {
	t.Helper()
	times := map[uint64]int{}
	for _, r := range s.Read(t, topic) {
		var v struct{ Packets uint64 }
		if err := json.Unmarshal(r.Value, &v); err != nil || string(r.Key) != origin.Host {
			t.Fatalf("%q: %q: %v", r.Key, r.Value, err)
		}
		times[v.Packets]++
	}
	for n := uint64(1); n <= want; n++ {
		if times[n] != 1 {
			t.Fatalf("record %d of %d is there %d times", n, want, times[n])
		}
	}
	if len(times) != int(want) {
		t.Errorf("%d records, want %d", len(times), want)
	}
}

// testKilled kills the program again and again while it sends.
func (s *scene) testKilled(t *testing.T) {
	a := newAgent(t, s.config(t, "killed"))
	a.fill(10)
	a.sent(t)
	checkPrivileges(t, a.child(t))
	last := 0
	for round := range soak.Times(5, 20) {
		before := a.Status().Exported
		for range 5 {
			a.fill(1000)
		}
		await.True(t, "a new program", func() bool { p := a.child(t); return p != 0 && p != last })
		last = a.child(t)
		await.True(t, "it to send", func() bool { return a.Status().Exported >= before+uint64(round%3*1000) })
		if p, err := os.FindProcess(last); err != nil || p.Kill() != nil {
			t.Logf("process %d: %v", last, err)
		}
	}
	a.fill(10)
	a.sent(t)
	s.once(t, "killed", a.records)
	if st := a.Status(); st.Retries == 0 || st.Exported != a.records || len(st.Lost) > 0 || st.LastError != "" {
		t.Errorf("%+v", st)
	}
}

// checkPrivileges: the program has no capability, though the test has all, and gets none from another program.
func checkPrivileges(t *testing.T, pid int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapInh:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(b), line+"\n") {
			t.Errorf("no %q in %s", line, b)
		}
	}
}

// child is the process id of the program that the log names last.
func (a *agent) child(t *testing.T) int {
	t.Helper()
	text := a.log.String()
	i := strings.LastIndex(text, " pid=")
	if i < 0 {
		return 0
	}
	text, _, _ = strings.Cut(text[i+len(" pid="):], "\n")
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// testRestart kills the broker while it gets intervals, and then the agent goes on as another one.
func (s *scene) testRestart(t *testing.T) {
	cfg := s.config(t, "restart")
	a := newAgent(t, cfg)
	for range 10 {
		a.fill(1000)
	}
	await.True(t, "some intervals to be sent", func() bool { return a.Status().Exported > 2000 })
	s.Kill()
	for range 10 {
		a.fill(1000)
	}
	await.True(t, "an error that says what to do", func() bool { return strings.Contains(a.Status().LastError, "start Kafka there") })
	a.end()
	next := newAgent(t, cfg)
	next.records = a.records
	next.fill(10)
	s.Again(t)
	next.sent(t)
	s.once(t, "restart", next.records)
	if a, b := a.Status(), next.Status(); a.Exported+b.Exported != next.records || len(a.Lost)+len(b.Lost) > 0 {
		t.Errorf("%+v, %+v, want %d records", a, b, next.records)
	}
}

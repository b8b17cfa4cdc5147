package analyze

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/join"
	"github.com/waymark-net/waymark/internal/analyze/settings"
	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/export/analyzer"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/await"
)

// The test binary is the analyzer, too: a process that can be killed.
const asAnalyzer = "ANALYZER_OF"

func TestMain(m *testing.M) {
	dir := os.Getenv(asAnalyzer)
	if dir == "" {
		os.Exit(m.Run())
	}
	a, err := New(configure(dir, os.Getenv("ANALYZER_LISTEN")), Deps{Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Clock: time.Now})
	if err == nil {
		err = a.Listen()
	}
	if err == nil {
		// A file is sealed now and then, and killed while it is.
		err = a.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func configure(dir, listen string) config.Config {
	cfg := config.Default()
	cfg.API.Socket = filepath.Join(dir, "s")
	own := settings.Section.Edit(&cfg)
	own.Listen, own.Path, own.Names, own.Revoked = listen, dir, []string{"127.0.0.1"}, filepath.Join(dir, "revoked")
	own.Rate = 1 << 30
	return cfg
}

// scene is an analyzer and what hosts of it need.
type scene struct {
	dir, listen string
	authority   *Authority
}

func newScene(t *testing.T) *scene {
	t.Helper()
	dir, err := os.MkdirTemp("", "an") // the socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	authority, err := OpenAuthority(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &scene{dir: dir, listen: "127.0.0.1:0", authority: authority}
}

// start runs an analyzer in this process.
func (s *scene) start(t *testing.T, change ...func(*settings.Config)) (a *Analyzer, stop func()) {
	t.Helper()
	cfg := configure(s.dir, s.listen)
	for _, f := range change {
		f(settings.Section.Edit(&cfg))
	}
	a, err := New(cfg, Deps{Log: slog.New(slog.DiscardHandler), Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	s.listen = a.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := await.Signal(t, "the end of the analyzer", done); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return a, stop
}

// certificate makes the files of a host, as joining does.
func (s *scene) certificate(t *testing.T, name string) join.Files {
	t.Helper()
	return certificateOf(t, s.authority, name)
}

// pusher is the exporter of an agent, with the store that feeds it.
type pusher struct {
	name     string
	exporter *analyzer.Exporter
	store    *store.Store
	stop     func()
	records  uint64
	packets  uint64
	from     time.Time
}

func (s *scene) pusher(t *testing.T, f join.Files, queue string, change ...func(*analyzer.Config)) *pusher {
	t.Helper()
	cfg := analyzer.Default()
	cfg.URL, cfg.CA, cfg.Cert, cfg.Key, cfg.Path, cfg.Size = "https://"+s.listen, f.CA, f.Cert, f.Key, queue, 64<<20
	for _, f := range change {
		f(&cfg)
	}
	e, err := analyzer.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Listen(); err != nil {
		t.Fatal(err)
	}
	p := &pusher{name: f.Name, exporter: e, store: store.New(store.Default()), from: time.Now().Add(-time.Hour)}
	p.store.OnEnd(e.Append)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stopped := false
	p.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := await.Signal(t, "the end of the exporter", done); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(p.stop)
	return p
}

// interval ends an interval with n records, each of other numbers of packets.
func (p *pusher) interval(n int) {
	iv := p.store.Begin(p.from)
	for i := range n {
		p.records++
		packets := 1 + (p.records*2654435761)%1000
		p.packets += packets
		r := flow.Record{
			Iface: "eth0", IfIndex: 2, Direction: flow.Ingress, Family: 4, Proto: 6,
			Src: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Dst: netip.AddrFrom4([4]byte{10, 0, 0, 2}), SrcPort: uint16(i), DstPort: 443,
			Counters: flow.Counters{Packets: packets, Bytes: packets * 100, WireBytes: packets * 114}, First: p.from, Last: p.from.Add(time.Second),
		}
		iv.Add(&r)
	}
	p.from = p.from.Add(10 * time.Second)
	iv.End(p.from)
}

// delivered waits until the queue is empty.
func (p *pusher) delivered(t *testing.T) {
	t.Helper()
	await.Success(t, func() error {
		if s := p.exporter.Status(); s.Exported < p.records {
			return fmt.Errorf("%s: %d of %d records were sent, %d wait: %s", p.name, s.Exported, p.records, s.Queued, s.LastError)
		}
		return nil
	})
}

// answer asks for sums by host.
func answer(t *testing.T, socket string) map[string]api.Row {
	t.Helper()
	all := map[string]api.Row{}
	a, err := api.NewClient(socket).Flows(context.Background(), api.Request{By: "host", Everywhere: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range a.Rows {
		all[row.Host] = row
	}
	return all
}

func (p *pusher) check(t *testing.T, rows map[string]api.Row) {
	t.Helper()
	row, ok := rows[p.name]
	if !ok || row.Records != p.records || row.Packets != p.packets {
		t.Errorf("%s: the analyzer has %d records of %d packets, want %d of %d", p.name, row.Records, row.Packets, p.records, p.packets)
	}
}

// TestKilledAnalyzer has sixteen agents send while the analyzer is killed again and again, and for a while is not there.
func TestKilledAnalyzer(t *testing.T) {
	s := newScene(t)
	_, stop := s.start(t) // for a port
	stop()
	var running *exec.Cmd
	launch := func() {
		running = exec.Command("/proc/self/exe")
		running.Env = append(os.Environ(), asAnalyzer+"="+s.dir, "ANALYZER_LISTEN="+s.listen)
		running.Stderr = os.Stderr
		if err := running.Start(); err != nil {
			t.Fatal(err)
		}
	}
	kill := func() {
		_ = running.Process.Kill()
		_ = running.Wait()
	}
	launch()
	defer func() { kill() }()
	var agents []*pusher
	for i := range 16 {
		f := s.certificate(t, fmt.Sprintf("host-%02d", i))
		agents = append(agents, s.pusher(t, f, filepath.Join(t.TempDir(), "queue")))
	}
	for round := range 20 {
		sent := func() (n uint64) {
			for _, p := range agents {
				n += p.exporter.Status().Exported
			}
			return n
		}
		before := sent()
		for i, p := range agents {
			for range 3 {
				p.interval(20 + (round*7+i)%60)
			}
		}
		// Killed while requests are at work: some are answered already.
		await.True(t, "some records to be sent", func() bool { return sent() > before })
		kill()
		if round == 10 { // it stays away, and an agent restarts meanwhile
			for _, p := range agents {
				p.interval(10)
			}
		}
		launch()
	}
	for _, p := range agents {
		p.delivered(t)
	}
	kill()
	launch()
	await.True(t, "the socket", func() bool {
		_, err := api.NewClient(filepath.Join(s.dir, "s")).Status(context.Background())
		return err == nil
	})
	rows := answer(t, filepath.Join(s.dir, "s"))
	for _, p := range agents {
		p.check(t, rows)
	}
	status, err := api.NewClient(filepath.Join(s.dir, "s")).Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	own := obs.SectionOf[state.Status](&status, state.Section)
	if own == nil || len(own.Hosts) != len(agents) {
		t.Fatalf("status: %+v", own)
	}
	for i := range own.Hosts {
		if own.Hosts[i].Missing > 0 {
			t.Errorf("%s: %d intervals are missing", own.Hosts[i].Name, own.Hosts[i].Missing)
		}
	}
	var text strings.Builder
	if err := state.Text(&text, &status); err != nil || !strings.Contains(text.String(), "host-07") {
		t.Errorf("text of the status: %v\n%s", err, text.String())
	}
}

// TestRestartedAgent has an agent end while the analyzer is away: what it queued is sent by the next one.
func TestRestartedAgent(t *testing.T) {
	s := newScene(t)
	_, stop := s.start(t)
	f := s.certificate(t, "athos")
	queue := filepath.Join(t.TempDir(), "queue")
	first := s.pusher(t, f, queue)
	first.interval(10)
	first.delivered(t)
	stop()
	first.interval(11)
	first.interval(12)
	await.True(t, "intervals to be queued", func() bool { return first.exporter.Status().Queued == 23 })
	first.stop()
	s.start(t)
	second := s.pusher(t, f, queue)
	second.interval(13)
	await.True(t, "the queue to be empty", func() bool { st := second.exporter.Status(); return st.Queued == 0 && st.Exported == 36 })
	rows := answer(t, filepath.Join(s.dir, "s"))
	second.records, second.packets = second.records+first.records, second.packets+first.packets
	second.check(t, rows)
}

// TestSharedQueue has an exporter take over the queue of another one, as after a reload with a changed configuration.
func TestSharedQueue(t *testing.T) {
	s := newScene(t)
	_, stop := s.start(t)
	stop()
	f := s.certificate(t, "athos")
	queue := filepath.Join(t.TempDir(), "queue")
	first, second := s.pusher(t, f, queue), s.pusher(t, f, queue)
	first.interval(10)
	second.interval(20)
	await.True(t, "the first to have its interval in the queue", func() bool { return first.exporter.Status().Queued == 10 })
	if st := second.exporter.Status(); !strings.Contains(st.LastError, "keeps its queue there") {
		t.Errorf("two have the queue: %+v", st)
	}
	first.stop()
	s.start(t)
	await.True(t, "both intervals to be sent", func() bool { return second.exporter.Status().Exported == 30 })
	second.records, second.packets = second.records+first.records, second.packets+first.packets
	second.check(t, answer(t, filepath.Join(s.dir, "s")))
}

package top

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"
	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"
	"github.com/muesli/termenv"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
	"github.com/waymark-net/waymark/internal/store"
	"github.com/waymark-net/waymark/test/golden"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func init() { time.Local = time.UTC }

// scene is what one interval brings: its number changes the rates.
func scene(n int) []flow.Record {
	tcp := flow.Record{
		Iface: "eth0", Direction: flow.Egress, Family: 6, Proto: 6, SrcPort: 50000, DstPort: 443,
		Src: netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:6666"), Dst: netip.MustParseAddr("2001:db8::1"),
		Counters: flow.Counters{Packets: uint64(100_000 * (n + 1)), Bytes: uint64(150_000_000 * (n + 1))}, First: epoch, Last: epoch.Add(time.Second),
	}
	if n == 0 {
		tcp.RTT = flow.RTT{Responder: 8 * time.Millisecond, Initiator: 210 * time.Microsecond}
	}
	back := tcp
	back.Src, back.Dst, back.SrcPort, back.DstPort, back.Direction = tcp.Dst, tcp.Src, 443, 50000, flow.Ingress
	back.Bytes, back.Packets, back.RTT = 3_000_000, 60_000, flow.RTT{}
	records := []flow.Record{tcp, back}
	for i := range 30 {
		records = append(records, flow.Record{
			Iface: "eth0", Family: 4, Proto: 17, SrcPort: uint16(30000 + i), DstPort: 53,
			Src: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), Dst: netip.MustParseAddr("198.51.100.200"),
			Counters: flow.Counters{Packets: 10, Bytes: uint64(100_000 / (i + 1 + n*i%7))}, First: epoch, Last: epoch,
		})
	}
	records = append(records,
		flow.Record{
			Iface: "eth0", Family: 4, Proto: 1, SrcPort: 7, DstPort: 8 << 8, Counters: flow.Counters{Packets: 2, Bytes: 168_000},
			Src: netip.MustParseAddr("192.0.2.1"), Dst: netip.MustParseAddr("192.0.2.254"), First: epoch, Last: epoch,
		},
		flow.Record{Iface: "eth0", Family: 4, Proto: 6, Counters: flow.Counters{Packets: 30, Bytes: 4000}, Unattributed: true, First: epoch, Last: epoch},
	)
	return records
}

// answers are n intervals of two seconds as the agent tells them.
func answers(t testing.TB, by, sort string, n int, change func([]flow.Record) []flow.Record) []api.Answer {
	t.Helper()
	keys, err := query.ParseBy(by)
	if err != nil {
		t.Fatal(err)
	}
	var out []api.Answer
	for i := range n {
		s := store.New(store.Default())
		iv := s.Begin(epoch.Add(time.Duration(i) * 2 * time.Second))
		records := scene(i)
		if change != nil {
			records = change(records)
		}
		for r := range records {
			iv.Add(&records[r])
		}
		iv.End(epoch.Add(time.Duration(i+1) * 2 * time.Second))
		a, err := s.Query(context.Background(), query.Plan{By: keys, Sort: sort})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, api.NewAnswer(a, flow.Origin{Host: "alpha"}))
	}
	return out
}

func testModel(view int) *model {
	m := newModel(Default(), view)
	r := lipgloss.NewRenderer(io.Discard)
	r.SetColorProfile(termenv.Ascii)
	m.styles = newStyles(r)
	m.status = &obs.Status{Host: "alpha", Interfaces: []obs.Interface{{Iface: "eth0", Coverage: 1}, {Iface: "eth1", Coverage: 0.9991}}}
	return m
}

func (m *model) send(messages ...tea.Msg) {
	for _, msg := range messages {
		m.Update(msg)
	}
}

func press(keys ...string) []tea.Msg {
	special := map[string]tea.KeyType{
		"enter": tea.KeyEnter, "esc": tea.KeyEsc, "tab": tea.KeyTab, "down": tea.KeyDown, "up": tea.KeyUp,
		"pgdown": tea.KeyPgDown, "end": tea.KeyEnd, "home": tea.KeyHome, "backspace": tea.KeyBackspace, "ctrl+u": tea.KeyCtrlU,
	}
	var out []tea.Msg
	for _, k := range keys {
		if kind, ok := special[k]; ok {
			out = append(out, tea.KeyMsg{Type: kind})
		} else {
			out = append(out, tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)})
		}
	}
	return out
}

// screen is what is drawn; every line must fit.
func screen(t *testing.T, m *model) string {
	t.Helper()
	s := m.View()
	lines := strings.Split(s, "\n")
	if len(lines) != m.height {
		t.Errorf("%d lines on a screen of %d", len(lines), m.height)
	}
	for i, l := range lines {
		if w := runewidth.StringWidth(l); w > m.width {
			t.Errorf("line %d takes %d of %d columns: %s", i+1, w, m.width, l)
		}
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func checkScreen(t *testing.T, name, got string) {
	t.Helper()
	golden.Check(t, filepath.Join("testdata", name+".screen"), got)
}

func TestScreens(t *testing.T) {
	twoIfaces := func(r []flow.Record) []flow.Record {
		r[0].Netns, r[1].Netns = "blue", "blue"
		return r
	}
	for i, v := range views {
		if v.filter != "" {
			continue // TestDelays
		}
		m := testModel(i)
		for _, a := range answers(t, v.by, "bytes", 12, nil) {
			m.send(answerMsg{0, a})
		}
		checkScreen(t, v.name, screen(t, m))
	}

	m := testModel(0)
	for _, a := range answers(t, views[0].by, "bytes", 12, twoIfaces) {
		m.send(answerMsg{0, a})
	}
	checkScreen(t, "two-namespaces", screen(t, m))

	m.send(tea.WindowSizeMsg{Width: 140, Height: 10})
	checkScreen(t, "wide", screen(t, m))
	m.send(tea.WindowSizeMsg{Width: 48, Height: 8})
	checkScreen(t, "narrow", screen(t, m))
	m.send(tea.WindowSizeMsg{Width: 80, Height: 24})
	m.cfg.ASCII = true
	got := screen(t, m)
	checkScreen(t, "ascii", got)
	for _, r := range got {
		if r > 127 {
			t.Errorf("%q on an ASCII screen", r)
		}
	}
}

// marked leaves the marked flows of a scene.
func marked(records []flow.Record) (out []flow.Record) {
	ms := func(all ...uint64) flow.Delays {
		var h inband.Histogram
		for _, v := range all {
			h.Add(v * 1e6)
		}
		return flow.DelaysOf(&h)
	}
	sent, received := records[0], records[1]
	sent.PDM = &flow.PDM{Sent: 9}
	received.PDM = &flow.PDM{Received: 9, Server: ms(40, 41, 41, 42), Network: ms(8, 8, 9)}
	far := received
	far.Src = netip.MustParseAddr("2001:db8:ffff::77")
	far.PDM = &flow.PDM{Received: 95, Lost: 5, Server: ms(1, 2, 2), Network: ms(180, 181, 190)}
	silent := sent
	silent.Dst, silent.DstPort = netip.MustParseAddr("2001:db8::25"), 25
	return []flow.Record{sent, received, far, silent}
}

func TestDelays(t *testing.T) {
	delays, err := viewNamed("delays")
	if err != nil {
		t.Fatal(err)
	}
	m := testModel(delays)
	for _, a := range answers(t, delaysBy, "delay", 12, marked) {
		m.send(answerMsg{0, a})
	}
	checkScreen(t, "delays", screen(t, m))

	none := answers(t, delaysBy, "delay", 1, func([]flow.Record) []flow.Record { return nil })[0]
	m.send(answerMsg{0, none})
	if s := screen(t, m); !strings.Contains(s, "nothing is marked: name flows under pdm.policies") {
		t.Error(s)
	}
	m.status.Sections = []obs.Section{{Name: "pdm"}}
	if s := screen(t, m); !strings.Contains(s, "no marked flow in this interval") {
		t.Error(s)
	}

	var asked request
	m.ask = func(r request) { asked = r }
	m.send(press("s", "s")...)
	if asked.sort != "network" || asked.filter != "pdm" {
		t.Errorf("asked for %+v", asked)
	}
	m.send(press("/", "t", "c", "p", "enter")...)
	if asked.filter != "(tcp) and pdm" {
		t.Errorf("asked for %+v", asked)
	}
	m.send(press("1")...)
	if asked.sort != "bytes" || asked.filter != "tcp" {
		t.Errorf("in another view, asked for %+v", asked)
	}
}

func TestTinyWindows(t *testing.T) {
	m := testModel(0)
	m.send(answerMsg{0, answers(t, views[0].by, "bytes", 1, nil)[0]})
	for _, size := range []tea.WindowSizeMsg{{Width: 1, Height: 2}, {Width: 20, Height: 3}, {Width: 10, Height: 5}} {
		m.send(size)
		screen(t, m)
		m.help = true
		screen(t, m)
		m.help = false
	}
}

func TestBeforeTheFirstInterval(t *testing.T) {
	m := testModel(0)
	checkScreen(t, "waiting", screen(t, m))
	m.send(answerMsg{0, api.Answer{}})
	if s := screen(t, m); !strings.Contains(s, "waiting for the next interval") {
		t.Error(s)
	}
}

// TestEachHost: where an analyzer cannot compare its hosts, totals have the packets of each.
func TestEachHost(t *testing.T) {
	m := testModel(0)
	a := answers(t, views[0].by, "bytes", 1, nil)[0]
	for _, why := range []string{"", "packets count at each host that saw them: too many flows"} {
		a.EachHost = why
		m.send(answerMsg{0, a})
		if s := screen(t, m); strings.Contains(s, "counted at each host") != (why != "") {
			t.Errorf("%q: %s", why, s)
		}
	}
}

func TestAgentGone(t *testing.T) {
	m := testModel(0)
	m.send(answerMsg{0, answers(t, views[0].by, "bytes", 1, nil)[0]})
	m.send(errorMsg{0, errors.New("no agent answers on /run/waymark/agent.sock")})
	if s := screen(t, m); !strings.Contains(s, "! no agent answers") || !strings.Contains(s, "udp") {
		t.Errorf("the last rows stay, and the error is reported:\n%s", s)
	}
	m.send(answerMsg{0, answers(t, views[0].by, "bytes", 1, nil)[0]})
	if s := screen(t, m); strings.Contains(s, "no agent") {
		t.Error(s)
	}
}

func TestTrend(t *testing.T) {
	past := trends{}
	row := api.Row{Row: query.Row{Record: flow.Record{Iface: "eth0", Counters: flow.Counters{Bytes: 1000}}}}
	past.add(1, time.Second, []api.Row{row})
	past.add(4, time.Second, []api.Row{row})
	p := past[keyOf(&row)]
	if diff := cmp.Diff([]float64{8000, gap, gap, 8000}, p.rates); diff != "" {
		t.Errorf("silent intervals (-want +got):\n%s", diff)
	}
	if got := p.spark(6, false); got != "  █  █" {
		t.Errorf("spark = %q", got)
	}
	if got := p.spark(3, true); got != "  #" {
		t.Errorf("spark = %q", got)
	}
	past.add(4+maxTrend+1, time.Second, nil)
	if len(past) != 0 {
		t.Error("a silent row is kept for ever")
	}
}

package top

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

func TestKeys(t *testing.T) {
	m := testModel(0)
	var asked []request
	m.ask = func(r request) { asked = append(asked, r) }
	m.send(answerMsg{0, answers(t, views[0].by, "bytes", 1, nil)[0]})
	last := func() request { return asked[len(asked)-1] }

	m.send(press("s")...)
	if last().sort != "packets" || last().generation != 1 {
		t.Errorf("s asks for %+v", last())
	}
	m.send(press("r")...)
	if !last().reverse {
		t.Errorf("r asks for %+v", last())
	}
	if s := screen(t, m); !strings.Contains(s, "sort: packets reversed") {
		t.Error(s)
	}
	m.send(press("3")...)
	if last().by != "pair" || m.answer != nil {
		t.Errorf("3 asks for %+v", last())
	}
	m.send(press("tab", "tab", "tab", "tab")...)
	if last().by != views[0].by {
		t.Errorf("tab after the last view asks for %+v", last())
	}
	n := len(asked)
	m.send(press("1")...)
	if len(asked) != n {
		t.Error("asked again for the view that is shown")
	}
	// An answer to what was asked before is passed over.
	m.send(answerMsg{0, answers(t, views[0].by, "bytes", 1, nil)[0]}, errorMsg{0, errors.New("old")})
	if m.answer != nil || m.err != nil {
		t.Error("took an answer to an older request")
	}
	for _, k := range []string{"q", "esc"} {
		if _, cmd := m.Update(press(k)[0]); cmd == nil {
			t.Errorf("%s does not quit", k)
		}
	}
}

func TestFilterKeys(t *testing.T) {
	m := testModel(0)
	var asked []request
	m.ask = func(r request) { asked = append(asked, r) }
	m.send(press("/", "t", "p", "c")...)
	checkScreen(t, "editing", screen(t, m))
	m.send(press("enter")...)
	if !m.editing || len(asked) != 0 {
		t.Error("took a filter that is wrong")
	}
	if s := screen(t, m); !strings.Contains(s, "! unknown field tpc: did you mean tcp?") {
		t.Error(s)
	}
	m.send(press("backspace", "backspace", "c", "p")...)
	m.send(tea.KeyMsg{Type: tea.KeySpace, Runes: []rune(" ")})
	m.send(press("enter")...)
	if m.editing || len(asked) != 1 || asked[0].filter != "tcp" {
		t.Errorf("asked %+v", asked)
	}
	// Fast hands, or a paste: several keys are read at once.
	m.send(press("/", "ctrl+u", "udp", "enter", "/")...)
	if m.filter != "udp" || len(asked) != 2 {
		t.Errorf("asked %+v", asked)
	}
	m.send(press("ctrl+u", "tcp", "enter")...)
	asked = asked[:1]
	if m.send(press("/", "ctrl+u", "u", "d", "p", "esc")...); m.editing || m.filter != "tcp" || len(asked) != 1 {
		t.Errorf("esc keeps %q, asked %+v", m.filter, asked)
	}
	// Keys of commands are letters while a filter is written.
	if _, cmd := m.Update(press("/")[0]); cmd != nil {
		t.Error("quit")
	}
	if _, cmd := m.Update(press("q")[0]); cmd != nil || m.draft != "tcpq" {
		t.Errorf("q while writing: %q", m.draft)
	}
}

func TestPause(t *testing.T) {
	m := testModel(0)
	all := answers(t, views[0].by, "bytes", 3, nil)
	m.send(answerMsg{0, all[0]})
	m.send(press("p")...)
	m.send(answerMsg{0, all[1]})
	if s := screen(t, m); !strings.Contains(s, "PAUSED") || !strings.Contains(s, "03:04:07") {
		t.Error(s)
	}
	m.send(press(" ")...)
	m.send(answerMsg{0, all[2]})
	if s := screen(t, m); strings.Contains(s, "PAUSED") || !strings.Contains(s, "03:04:11") {
		t.Error(s)
	}
}

func TestScroll(t *testing.T) {
	m := testModel(0)
	m.send(answerMsg{0, answers(t, views[0].by, "bytes", 1, nil)[0]})
	rows := len(m.answer.Rows)
	for _, tt := range []struct {
		key           string
		cursor, first int
	}{
		{"up", 0, 0},
		{"down", 1, 0},
		{"j", 2, 0},
		{"k", 1, 0},
		{"pgdown", 20, 1},
		{"end", rows - 1, rows - 20},
		{"down", rows - 1, rows - 20},
		{"up", rows - 2, rows - 20},
		{"home", 0, 0},
	} {
		m.send(press(tt.key)...)
		if m.cursor != tt.cursor || m.offset != tt.first {
			t.Errorf("after %s row %d is selected and %d the first, want %d and %d", tt.key, m.cursor, m.offset, tt.cursor, tt.first)
		}
	}
	m.send(press("end")...)
	if s := screen(t, m); !strings.Contains(s, "(unattributed)") {
		t.Errorf("the last row is not shown:\n%s", s)
	}
}

func TestSortByRoundTrip(t *testing.T) {
	m := testModel(0)
	m.send(press("s", "s")...)
	all := answers(t, views[0].by, "bytes", 2, nil)
	m.send(answerMsg{2, all[0]}, answerMsg{2, all[1]})
	// The handshake was in the first interval only.
	if got := m.past[keyOf(&m.answer.Rows[0])].rtt; got != 8210*time.Microsecond {
		t.Errorf("the first row has a round trip of %v", got)
	}
}

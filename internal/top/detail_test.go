package top

import (
	"slices"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/flow"
)

// The selected row stays selected wherever it is in the next interval.
func TestCursorFollowsTheRow(t *testing.T) {
	m := testModel(1)
	all := answers(t, "flow", "bytes", 3, nil)
	m.send(answerMsg{0, all[0]})
	m.send(press("down", "down", "down", "down")...)
	want := keyOf(m.selected())
	for _, a := range all[1:] {
		slices.Reverse(a.Rows)
		m.send(answerMsg{0, a})
		if m.cursor == 4 || keyOf(m.selected()) != want {
			t.Errorf("row %d is selected: %+v", m.cursor, m.selected())
		}
	}
}

// Enter opens a flow with all that is known of it, and closes it.
func TestDetail(t *testing.T) {
	m := testModel(1)
	all := answers(t, "flow", "bytes", 6, func(r []flow.Record) []flow.Record {
		r[0].Initiator, r[0].InitiatorBy, r[0].TCPFlags = flow.InitiatorSrc, flow.EvidenceHandshake, 0x1b
		return r
	})
	m.send(press("enter")...) // nothing to open yet
	for _, a := range append(all[:2:2], all[4]) {
		m.send(answerMsg{0, a})
	}
	m.send(press("enter")...)
	checkScreen(t, "detail", screen(t, m))
	last := all[5]
	last.Rows = last.Rows[1:]
	m.send(answerMsg{0, last})
	if s := screen(t, m); !strings.Contains(s, "no packets in the last interval") || !strings.Contains(s, "50000") {
		t.Errorf("a silent flow:\n%s", s)
	}
	m.send(tea.WindowSizeMsg{Width: 30, Height: 8})
	m.send(press("down", "down", "up")...)
	screen(t, m)
	if _, cmd := m.Update(press("esc")[0]); cmd != nil || m.detail != nil {
		t.Error("esc does not just close the flow")
	}
	m.send(press("enter", "enter")...)
	if m.detail != nil {
		t.Error("enter does not close the flow")
	}
	for i := range views { // whatever a row is
		m = testModel(i)
		m.send(answerMsg{0, answers(t, views[i].by, "bytes", 1, nil)[0]})
		m.send(press("enter")...)
		if s := screen(t, m); !strings.Contains(s, "packets") || !strings.Contains(s, "enter close") {
			t.Errorf("%s:\n%s", views[i].name, s)
		}
	}
}

// Intervals that were not seen are a gap in the history.
func TestHistoryHasGaps(t *testing.T) {
	m := testModel(0)
	all := answers(t, views[0].by, "bytes", 8, nil)
	m.send(answerMsg{0, all[0]}, answerMsg{0, all[1]}, answerMsg{0, all[3]})
	m.send(press("p")...)
	m.send(answerMsg{0, all[4]}, answerMsg{0, all[5]})
	m.send(press("p")...)
	m.send(answerMsg{0, all[6]}, answerMsg{0, all[7]})
	p := m.past[keyOf(&m.answer.Rows[0])]
	var gaps []int
	for i, r := range p.rates {
		if r == gap {
			gaps = append(gaps, i)
		}
	}
	if diff := cmp.Diff([]int{2, 4, 5}, gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// A filter that joins a record's test with a row's has no meaning where a row has
// several records: conversations, and flows on two interfaces.
func TestMixedFilter(t *testing.T) {
	for view := range 2 {
		m := testModel(view)
		m.send(press("/", "udp or bytes > 1M", "enter")...)
		if !m.editing || !strings.Contains(m.draftErr, "joins a test of each record") {
			t.Errorf("view %d took %q: %q", view, m.filter, m.draftErr)
		}
	}
}

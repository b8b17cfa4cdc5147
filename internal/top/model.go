package top

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/query"
)

// model is everything on the screen. Update changes it, View draws it.
type model struct {
	cfg    Config
	styles styles
	ask    func(request)

	width, height int
	view, sort    int
	reverse       bool
	filter        string
	generation    int // of the request

	answer *api.Answer // nil: none to this request yet
	number int         // of the interval
	until  time.Time   // when it ended
	past   trends
	err    error // of the agent
	status *obs.Status

	paused, help bool
	cursor       int // selected row
	offset       int // first row shown
	detail       *detail

	editing  bool
	draft    string
	draftErr string
}

func newModel(cfg Config, view int) *model {
	return &model{
		cfg: cfg, view: view, filter: cfg.Filter, past: trends{},
		width: 80, height: 24,
		ask: func(request) {},
	}
}

func (m *model) request() request {
	v := &views[m.view]
	filter := m.filter
	switch {
	case v.filter == "":
	case filter == "":
		filter = v.filter
	default:
		filter = "(" + filter + ") and " + v.filter
	}
	return request{m.generation, filter, v.by, m.sortOrder().name, m.reverse}
}

// orders are those of the view.
func (m *model) orders() []order {
	if own := views[m.view].sorts; own != nil {
		return own
	}
	return sorts
}

func (m *model) sortOrder() order { return m.orders()[m.sort] }

// again asks again, after what is asked for changed.
func (m *model) again() {
	m.generation++
	m.cursor, m.offset = 0, 0
	m.ask(m.request())
}

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case statusMsg:
		m.status = &msg.status
	case errorMsg:
		if msg.generation == m.generation {
			m.err = msg.err
		}
	case answerMsg:
		if msg.generation == m.generation {
			m.take(msg.answer)
		}
	case tea.KeyMsg:
		return m, m.keys(msg)
	}
	return m, nil
}

// keys takes keys apart that were read in one go.
func (m *model) keys(msg tea.KeyMsg) tea.Cmd {
	if msg.Type != tea.KeyRunes || msg.Alt {
		return m.oneKey(msg)
	}
	for _, r := range msg.Runes {
		if cmd := m.oneKey(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}}); cmd != nil {
			return cmd
		}
	}
	return nil
}

func (m *model) oneKey(msg tea.KeyMsg) tea.Cmd {
	if m.editing {
		m.editKey(msg)
		return nil
	}
	return m.key(msg.String())
}

// take shows an answer, unless the user has stopped the picture.
func (m *model) take(a api.Answer) {
	m.err = nil
	if m.paused {
		return
	}
	m.number += 1 + m.skipped(&a)
	m.until = a.To
	m.past.add(m.number, taken(&a), a.Rows)
	var selected rowKey
	if m.cursor > 0 {
		selected = keyOf(m.selected())
	}
	m.answer = &a
	m.order()
	m.follow(selected)
}

// skipped is how many intervals were not seen since the last answer: the picture
// was stopped, the agent away, or this reader too slow.
func (m *model) skipped(a *api.Answer) int {
	between, one := a.From.Sub(m.until), taken(a)
	if m.until.IsZero() || one <= 0 || between <= 0 {
		return 0
	}
	return int(min((between+one/2)/one, maxTrend))
}

// taken is the time that an answer covers.
func taken(a *api.Answer) time.Duration { return a.To.Sub(a.From) }

// order sorts by round trip here: the agent knows only those of this interval.
func (m *model) order() {
	if m.answer == nil || m.sortOrder().name != "rtt" {
		return
	}
	slices.SortStableFunc(m.answer.Rows, func(a, b api.Row) int {
		c := cmp.Compare(m.past[keyOf(&b)].rtt, m.past[keyOf(&a)].rtt)
		if m.reverse {
			return -c
		}
		return c
	})
}

// key does what a key says.
func (m *model) key(key string) tea.Cmd {
	if m.help {
		m.help = false
		if key != "q" && key != "ctrl+c" {
			return nil
		}
	}
	if m.detail != nil && m.detailKey(key) {
		return nil
	}
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "enter":
		m.openDetail()
	case "?", "h":
		m.help = true
	case "p", " ":
		m.paused = !m.paused
	case "/":
		m.editing, m.draft, m.draftErr = true, m.filter, ""
	case "tab":
		m.show((m.view + 1) % len(views))
	case "shift+tab":
		m.show((m.view + len(views) - 1) % len(views))
	case "1", "2", "3", "4", "5", "6":
		m.show(int(key[0] - '1'))
	case "s":
		m.sort = (m.sort + 1) % len(m.orders())
		m.again()
	case "r":
		m.reverse = !m.reverse
		m.again()
	default:
		m.scroll(key)
	}
	return nil
}

// show changes the view; its rows have another past.
func (m *model) show(view int) {
	if view == m.view {
		return
	}
	if views[view].sorts != nil || views[m.view].sorts != nil {
		m.sort = 0 // orders differ
	}
	m.view, m.answer, m.past, m.paused, m.detail = view, nil, trends{}, false, nil
	m.again()
}

// editKey edits the filter.
func (m *model) editKey(msg tea.KeyMsg) {
	switch msg.Type {
	case tea.KeyEsc, tea.KeyCtrlC:
		m.editing = false
	case tea.KeyEnter:
		m.acceptFilter()
	case tea.KeyBackspace:
		_, n := utf8.DecodeLastRuneInString(m.draft)
		m.draft = m.draft[:len(m.draft)-n]
	case tea.KeyCtrlU:
		m.draft = ""
	case tea.KeyRunes, tea.KeySpace:
		m.draft += string(msg.Runes)
	}
}

// acceptFilter asks with the new filter, or says what is wrong with it.
func (m *model) acceptFilter() {
	if err := m.checkFilter(m.draft); err != nil {
		m.draftErr = err.Error()
		return
	}
	m.editing = false
	m.draft = strings.TrimSpace(m.draft)
	if m.draft != m.filter {
		m.filter, m.answer, m.paused = m.draft, nil, false
		m.again()
	}
}

// checkFilter refuses what the view cannot be filtered by.
func (m *model) checkFilter(text string) error {
	f, err := filter.Parse(text)
	var wrong *filter.Error
	if errors.As(err, &wrong) {
		return errors.New(wrong.What)
	}
	if err != nil {
		return err
	}
	by, err := query.ParseBy(views[m.view].by)
	if err != nil {
		return err
	}
	_, _, err = f.Split(by.Whole())
	return err
}

// Package top is the live view in the terminal. Input: answers of the agent, one per
// scan interval, and keys. Output: screens. Caller: waymark top.
//
// It asks the agent for shorter intervals while it runs. Everything on the screen
// is text and reverse video: it needs no colour, and with Config.ASCII no more
// than ASCII.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/obs"
)

// Config says what is shown at first.
type Config struct {
	Every  time.Duration // the interval to ask for
	Filter string
	View   string // one of ViewNames
	ASCII  bool   // the terminal shows nothing else
}

// Default shows conversations every two seconds.
func Default() Config { return Config{Every: 2 * time.Second, View: views[0].name} }

// Client asks the agent.
type Client interface {
	Status(context.Context) (obs.Status, error)
	Flows(context.Context, api.Request) (api.Answer, error)
	Follow(context.Context, api.Request, func(api.Answer) error) error
}

// Deps are what the view works with.
type Deps struct {
	Client Client
	In     io.Reader
	Out    io.Writer
}

// Top is the live view.
type Top struct {
	cfg  Config
	deps Deps
	view int
}

// New checks the configuration.
func New(cfg Config, deps Deps) (*Top, error) {
	if _, err := filter.Parse(cfg.Filter); err != nil {
		return nil, err
	}
	view, err := viewNamed(cfg.View)
	if err != nil {
		return nil, err
	}
	return &Top{cfg, deps, view}, nil
}

// Run shows the view until the user quits or ctx ends. That no agent answers is
// an error at the start; later it is shown, and asking goes on.
func (t *Top) Run(ctx context.Context) error {
	status, err := t.deps.Client.Status(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	m := newModel(t.cfg, t.view)
	m.status = &status
	m.styles = newStyles(lipgloss.NewRenderer(t.deps.Out))
	feed := &feed{client: t.deps.Client, every: t.cfg.Every}
	m.ask = func(r request) { feed.ask(ctx, r) }
	program := tea.NewProgram(m, tea.WithAltScreen(), tea.WithContext(ctx), tea.WithInput(t.deps.In), tea.WithOutput(t.deps.Out))
	feed.send = program.Send
	m.ask(m.request())
	go feed.pollStatus(ctx)
	if _, err := program.Run(); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, tea.ErrProgramKilled) {
		return fmt.Errorf("show the live view: %w", err)
	}
	return nil
}

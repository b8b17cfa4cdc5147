package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/stage"
	"github.com/waymark-net/waymark/internal/stage/list"
)

// stages are those that the configuration enables, by the names of their kinds.
type stages struct {
	names []string
	all   []*stage.Stage
}

// newStages prepares what a configuration enables.
func newStages(cfg *config.Config, deps stage.Deps) (*stages, error) {
	s := &stages{}
	for _, k := range list.On(cfg) {
		one, err := k.New(cfg, deps)
		if err != nil {
			return nil, err
		}
		s.names, s.all = append(s.names, k.Name), append(s.all, one)
	}
	return s, nil
}

// datapath are the parts in the kernel.
func (s *stages) datapath() (out []*datapath.Stage) {
	for _, one := range s.all {
		for _, part := range []*datapath.Stage{one.Datapath, one.Second} {
			if part != nil {
				out = append(out, part)
			}
		}
	}
	return out
}

// start follows the loading of the datapath.
func (s *stages) start() error {
	return s.each(func(one *stage.Stage) func() error { return one.Start })
}

// stop follows the last drain.
func (s *stages) stop() error {
	return s.each(func(one *stage.Stage) func() error { return one.Stop })
}

// Renew restarts what ends by itself after a time (RFC 8250 section 4.4).
func (a *Agent) Renew() error {
	return a.stages.each(func(one *stage.Stage) func() error { return one.Renew })
}

func (s *stages) each(of func(*stage.Stage) func() error) error {
	var errs []error
	for i, one := range s.all {
		if f := of(one); f != nil {
			if err := f(); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", s.names[i], err))
			}
		}
	}
	return errors.Join(errs...)
}

// settle restores in the next configuration what running stages cannot change.
func settle(running, next *config.Config) {
	for _, k := range list.Kinds() {
		if k.Settle != nil {
			k.Settle(running, next)
		}
	}
}

// reload checks the sections of stages that changed. apply makes them effective; nil:
// none changed.
func (s *stages) reload(next *config.Config, changes []config.Change) (apply func() error, err error) {
	var all []func() error
	for i, one := range s.all {
		key := s.names[i]
		at := slices.IndexFunc(changes, func(c config.Change) bool { return strings.HasPrefix(c.Key, key+".") })
		if one.Reload == nil || at < 0 && !one.Rereads {
			continue
		}
		if at >= 0 {
			key = changes[at].Key
		}
		f, err := one.Reload(next)
		if err != nil {
			return nil, fmt.Errorf("reload %s: %w", key, err)
		}
		all = append(all, func() error {
			if err := f(); err != nil {
				return fmt.Errorf("reload %s: %w", key, err)
			}
			return nil
		})
	}
	if len(all) == 0 {
		return nil, nil
	}
	return func() error {
		for _, f := range all {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// sections are what the stages report.
func (a *Agent) sections() (out []obs.Section) {
	for i, one := range a.stages.all {
		if one.Status == nil {
			continue
		}
		value, err := one.Status()
		if err != nil {
			a.log.Debug("reading the state of a stage", "stage", a.stages.names[i], "error", err)
		}
		if value != nil {
			out = append(out, obs.Section{Name: a.stages.names[i], Value: value})
		}
	}
	return out
}

// streams are those of all stages; those that are off refuse readers.
func (s *stages) streams() (out []api.Stream) {
	for _, k := range list.Kinds() {
		for _, one := range k.Streams {
			one.Run = served(s, one.Path, func(x *stage.Stage) map[string]func(context.Context, func(api.Event)) error { return x.Events })
			out = append(out, one)
		}
	}
	return out
}

// pages are those of all stages; those that are off refuse readers.
func (s *stages) pages() (out []api.Page) {
	for _, k := range list.Kinds() {
		for _, one := range k.Pages {
			one.Set = served(s, one.Path, func(x *stage.Stage) map[string]func(json.RawMessage) (any, error) { return x.Changes })
			one.Get = served(s, one.Path, func(x *stage.Stage) map[string]func() (any, error) { return x.Pages })
			out = append(out, one)
		}
	}
	return out
}

// served is what a running stage has for a path; nil: none has.
func served[F any](s *stages, path string, of func(*stage.Stage) map[string]F) (f F) {
	for _, one := range s.all {
		if found, ok := of(one)[path]; ok {
			f = found
		}
	}
	return f
}

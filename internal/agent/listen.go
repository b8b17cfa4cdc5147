package agent

import "context"

// listen opens what the agent serves: API and metrics. Errors come before
// anything is attached.
func (a *Agent) listen() ([]func(context.Context) error, error) {
	return nil, nil
}

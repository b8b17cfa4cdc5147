package main

import (
	"time"

	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/timespec"
)

// absoluteTimes has --since and --until mean the same on the agent: a time of day is in the user's
// zone.
func absoluteTimes(verb string, now time.Time, since, until *string) error {
	for name, text := range map[string]*string{"since": since, "until": until} {
		if err := absoluteTime(verb, name, now, text); err != nil {
			return err
		}
	}
	return nil
}

// absoluteTime does that for one flag.
func absoluteTime(verb, flag string, now time.Time, text *string) error {
	if *text == "" {
		return nil
	}
	at, err := timespec.Since(*text, now)
	if err != nil {
		return command.UsageErrorf("%s: --%s %s: %w", verb, flag, *text, err)
	}
	*text = at.Format(time.RFC3339Nano)
	return nil
}

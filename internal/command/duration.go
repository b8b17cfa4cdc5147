package command

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/waymark-net/waymark/internal/timespec"
)

// durationFlag is a flag with a duration, in the units of package timespec.
type durationFlag struct{ value *time.Duration }

// DurationVar adds such a flag.
func DurationVar(flags *pflag.FlagSet, value *time.Duration, name string, otherwise time.Duration, usage string) {
	*value = otherwise
	flags.Var(durationFlag{value}, name, usage)
}

// Set implements pflag.Value.
func (d durationFlag) Set(text string) (err error) {
	*d.value, err = timespec.Duration(text)
	return err
}

// String implements pflag.Value.
func (d durationFlag) String() string {
	if d.value == nil {
		return "0s"
	}
	return d.value.String()
}

// Type implements pflag.Value.
func (d durationFlag) Type() string { return "duration" }

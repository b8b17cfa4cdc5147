package command

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/api"
	"github.com/waymark-net/waymark/internal/config"
	"github.com/waymark-net/waymark/internal/kernel"
)

// Exit codes of every verb.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2 // the command line or the configuration is wrong
	ExitMissing = 3 // a privilege or a kernel feature is missing
)

// ExitCodes are the codes with their meaning, for the reference.
var ExitCodes = []struct {
	Code int
	Doc  string
}{
	{ExitOK, "Success."},
	{ExitFailure, "Failure; stderr reports the reason."},
	{ExitUsage, "The command line or the configuration is wrong."},
	{ExitMissing, "A privilege or a kernel feature is missing."},
}

// ErrReported marks an error whose text the verb has already printed.
var ErrReported = errors.New("reported")

// UsageError is an error of who typed the command or wrote the configuration.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// UsageErrorf is one with a text.
func UsageErrorf(format string, args ...any) error {
	return UsageError{Err: fmt.Errorf(format, args...)}
}

// ExitCode maps an error to the exit code. Packages say that something is
// missing with kernel.ErrMissing, or by wrapping what the kernel said: EPERM and
// EACCES are fs.ErrPermission; ENOSYS, EOPNOTSUPP and the loader's own verdict
// are errors.ErrUnsupported or ebpf.ErrNotSupported.
func ExitCode(err error) int {
	var usage UsageError
	var problems config.Problems
	var refused *api.Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &usage),
		errors.As(err, &problems),
		errors.Is(err, config.ErrUnreadable) && !errors.Is(err, fs.ErrPermission),
		errors.As(err, &refused) && refused.Status == http.StatusBadRequest:
		return ExitUsage
	case errors.Is(err, kernel.ErrMissing),
		errors.Is(err, fs.ErrPermission),
		errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, ebpf.ErrNotSupported):
		return ExitMissing
	default:
		return ExitFailure
	}
}

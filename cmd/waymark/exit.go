package main

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
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2 // the command line or the configuration is wrong
	exitMissing = 3 // a privilege or a kernel feature is missing
)

// exitCodes are the codes with their meaning, for the reference.
var exitCodes = []struct {
	code int
	doc  string
}{
	{exitOK, "Success."},
	{exitFailure, "Failure; stderr reports the reason."},
	{exitUsage, "The command line or the configuration is wrong."},
	{exitMissing, "A privilege or a kernel feature is missing."},
}

// errReported marks an error whose text the verb has already printed.
var errReported = errors.New("reported")

// usageError is an error of who typed the command or wrote the configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// exitCode maps an error to the exit code. Packages say that something is
// missing with kernel.ErrMissing, or by wrapping what the kernel said: EPERM and
// EACCES are fs.ErrPermission; ENOSYS, EOPNOTSUPP and the loader's own verdict
// are errors.ErrUnsupported or ebpf.ErrNotSupported.
func exitCode(err error) int {
	var usage usageError
	var problems config.Problems
	var refused *api.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage),
		errors.As(err, &problems),
		errors.Is(err, config.ErrUnreadable) && !errors.Is(err, fs.ErrPermission),
		errors.As(err, &refused) && refused.Status == http.StatusBadRequest:
		return exitUsage
	case errors.Is(err, kernel.ErrMissing),
		errors.Is(err, fs.ErrPermission),
		errors.Is(err, errors.ErrUnsupported),
		errors.Is(err, ebpf.ErrNotSupported):
		return exitMissing
	default:
		return exitFailure
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/obs"
)

// versionInfo is what a bug report needs first.
type versionInfo struct {
	obs.Build
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"`
}

func newVersionCommand() *cobra.Command {
	var out outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary and of the kernel under it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionInfo{Build: obs.ReadBuild(), Arch: runtime.GOARCH, Kernel: kernelRelease()}
			return printVersion(cmd.OutOrStdout(), v, out.format)
		},
	}
	out.register(cmd, outputTable, outputJSON)
	return cmd
}

func printVersion(w io.Writer, v versionInfo, format string) error {
	if format == outputJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	_, err := fmt.Fprintf(w, "waymark %s\ncommit  %s\ngo      %s %s\nkernel  %s\n",
		v.Version, v.Commit, v.Go, v.Arch, v.Kernel)
	return err
}

// kernelRelease is what uname -r prints.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}

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
		Short: "Print the version of this binary and of the kernel",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out.format == outputJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(readVersion())
			}
			_, err := io.WriteString(cmd.OutOrStdout(), versionText())
			return err
		},
	}
	out.register(cmd, outputTable, outputJSON)
	return cmd
}

func readVersion() versionInfo {
	return versionInfo{Build: obs.ReadBuild(), Arch: runtime.GOARCH, Kernel: kernelRelease()}
}

// versionText is what waymark version and waymark --version print.
func versionText() string {
	v := readVersion()
	return fmt.Sprintf("waymark %s\ncommit  %s\ngo      %s %s\nkernel  %s\n", v.Version, v.Commit, v.Go, v.Arch, v.Kernel)
}

// kernelRelease is what uname -r prints.
func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown: " + err.Error()
	}
	return unix.ByteSliceToString(u.Release[:])
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/analyze/join"
)

func newJoinCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "join URL TOKEN",
		Short: "Have this host join an analyzer: make a key, and get a certificate for it",
		Long: `Join makes a key, sends a request for a certificate to the analyzer, and writes key,
certificate and CA to files. The key does not leave the host. The token, of waymark
analyze token, also says which CA the analyzer must have: nobody else gets the token.

It prints the lines for the configuration of the agent.`,
		Example: `  waymark join https://analyzer.example:8476 wmjoin-…`,
		Args:    cobra.ExactArgs(2), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := join.Host(cmd.Context(), args[0], args[1], dir)
			if err != nil {
				return fmt.Errorf("join: %w", err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "waymark: this host is %s at the analyzer; the agent needs to read %s. Add to its configuration:\n", f.Name, f.Key)
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "export:\n  - analyzer: {url: %q, ca: %q, cert: %q, key: %q}\n", args[0], f.CA, f.Cert, f.Key)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "/etc/waymark", "write the files to directory `DIR`")
	_ = cmd.MarkFlagDirname("dir")
	return cmd
}

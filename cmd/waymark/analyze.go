package main

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	_ "github.com/waymark-net/waymark/internal/analyze/settings" // waymark config knows the analyzer's section, too
	"github.com/waymark-net/waymark/internal/programs"
)

// analyzerProgram is a program of its own, so that agents need not have an analyzer in their binary.
const analyzerProgram = "waymark-analyze"

// newAnalyzeCommand is waymark analyze, which the analyzer's program answers: its flags, help and completion, too.
func newAnalyzeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:                "analyze",
		Short:              "Run the analyzer: keep the records of many hosts, and answer for all of them",
		DisableFlagParsing: true,
		Args:               cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := programs.Find(analyzerProgram)
			if err != nil {
				return fmt.Errorf("analyze: %w", err)
			}
			return fmt.Errorf("analyze: run %s: %w", path, syscall.Exec(path, append([]string{path}, args...), os.Environ()))
		},
		ValidArgsFunction: completeAnalyze,
	}
	return cmd
}

// completeAnalyze asks the analyzer's program, whose answer is that of any program with cobra: candidates, and how to use them.
func completeAnalyze(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	path, err := programs.Find(analyzerProgram)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	out, err := exec.Command(path, append([]string{cobra.ShellCompRequestCmd}, append(args, typed)...)...).Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := len(lines) - 1
	how, parseErr := strconv.Atoi(strings.TrimPrefix(lines[last], ":"))
	if err != nil || parseErr != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return lines[:last], cobra.ShellCompDirective(how)
}

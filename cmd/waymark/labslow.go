package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/timespec"
)

// registerSlowFlag adds --slow to lab up.
func registerSlowFlag(cmd *cobra.Command) *map[string]string {
	return cmd.Flags().StringToString("slow", nil, "hosts in which each packet takes longer, such as porthos=1ms")
}

// slowHosts reads --slow.
func slowHosts(given map[string]string) (map[string]time.Duration, error) {
	delays := map[string]time.Duration{}
	for host, text := range given {
		delay, err := timespec.Duration(text)
		if err != nil {
			return nil, fmt.Errorf("--slow %s=%s: %w", host, text, err)
		}
		delays[host] = delay
	}
	return delays, nil
}

package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/topology"
)

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completeFilter offers what may follow in a filter.
func completeFilter(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	words, field := filter.Next(strings.Join(args, " "))
	var offered []cobra.Completion
	for _, w := range words {
		offered = append(offered, cobra.CompletionWithDesc(w.Text, w.Doc))
	}
	switch field {
	case "iface":
		offered = append(offered, present()...)
	case "netns":
		offered = append(offered, namespaces()...)
	}
	return offered, noFiles
}

// completeList offers words for a list with commas.
func completeList(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		var offered []cobra.Completion
		for _, w := range words {
			if !slices.Contains(strings.Split(before, ","), w) {
				offered = append(offered, before+w)
			}
		}
		return offered, noFiles | cobra.ShellCompDirectiveNoSpace
	}
}

func completeInterfaces(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return present(), noFiles
}

func completeNamespaces(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return append(namespaces(), topology.AllNetns), noFiles
}

// namespaces are the names of the network namespaces.
func namespaces() []string {
	entries, err := os.ReadDir(topology.NetnsDir)
	if err != nil {
		return nil // there are none, or none that this user may see
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// completeHosts offers the hosts of the lab that --prefix names.
func completeHosts(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // the command to run there
	}
	prefix, err := cmd.Flags().GetString("prefix")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	infos, err := lab.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offered []cobra.Completion
	for _, i := range only(infos, prefix) {
		for _, h := range i.Hosts {
			addresses := make([]string, len(h.Interfaces))
			for n, e := range h.Interfaces {
				addresses[n] = e.Addr4.Addr().String()
			}
			offered = append(offered, cobra.CompletionWithDesc(h.Name, strings.Join(addresses, ", ")))
		}
	}
	return offered, noFiles
}

// completePrefixes offers the prefixes of the labs that exist.
func completePrefixes(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	infos, err := lab.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offered []cobra.Completion
	for _, i := range infos {
		offered = append(offered, cobra.CompletionWithDesc(i.Prefix, i.Topology))
	}
	return offered, noFiles
}

package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/config"
)

// configFlags are the flags of verbs that need the whole configuration. Those
// that set a key are handed on in the order in which they were given.
type configFlags struct {
	file  string
	given []config.Flag
}

// keyFlags are short ways to set common keys; --set takes them all.
var keyFlags = []struct{ name, short, key, usage string }{
	{"interface", "i", "interfaces", "attach to interface `IFACE`: a name or a glob; IFACE:ingress or IFACE:egress for one direction; may be repeated"},
	{"exclude", "", "exclude", "do not attach to interface `IFACE`, a name or a glob; may be repeated"},
	{"netns", "", "netns", "also attach in network namespace `NAME`; all: in every one; may be repeated"},
	{"probe", "", "probe", "count packets with `PROBE`: auto, ebpf or afpacket"},
	{"socket", "", "api.socket", "`PATH` of the API's unix socket"},
	{"log-level", "", "log.level", "log messages of this `LEVEL` and above: debug, info, warn or error"},
}

func (c *configFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&c.file, "config", "c", "", "read the configuration from YAML `FILE`")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	for _, f := range keyFlags {
		cmd.Flags().VarP(&keyFlag{c, "--" + f.name, f.key}, f.name, f.short, f.usage)
	}
	cmd.Flags().Var(&keyFlag{flags: c, name: "--set"}, "set", "set any configuration key, as in `KEY=VALUE`; may be repeated")
	completeKeys(cmd)
}

// completeKeys has a shell offer what the flags take.
func completeKeys(cmd *cobra.Command) {
	words := map[string][]string{}
	var keys []cobra.Completion
	for _, section := range config.Reference() {
		for _, k := range section.Keys {
			if k.Env != "" { // not inside a list
				words[k.Name] = k.Words
				keys = append(keys, cobra.CompletionWithDesc(k.Name+"=", strings.ReplaceAll(k.Doc, "`", "")))
			}
		}
	}
	// The only error is a flag that does not exist, and all were made above.
	for _, f := range keyFlags {
		if len(words[f.key]) > 0 {
			_ = cmd.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(words[f.key], cobra.ShellCompDirectiveNoFileComp))
		}
	}
	_ = cmd.RegisterFlagCompletionFunc("set", cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
	_ = cmd.RegisterFlagCompletionFunc("interface", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return present(), noFiles
	})
	_ = cmd.RegisterFlagCompletionFunc("netns", completeNamespaces)
}

// loadWithOrigins reads the configuration. What is odd but no error goes to stderr.
func (c *configFlags) loadWithOrigins(stderr io.Writer) (config.Config, config.Origins, error) {
	for _, warning := range config.UnknownEnv(os.Environ()) {
		fmt.Fprintf(stderr, "waymark: warning: %s\n", warning)
	}
	return config.Load(config.Sources{File: c.file, Env: os.Environ(), Flags: c.given})
}

// keyFlag is a flag that sets a key; without a key it is --set.
type keyFlag struct {
	flags     *configFlags
	name, key string
}

// Set implements pflag.Value.
func (f *keyFlag) Set(text string) error {
	key, value := f.key, text
	if key == "" {
		var ok bool
		if key, value, ok = strings.Cut(text, "="); !ok {
			return fmt.Errorf("write it like flow.scan_interval=1s")
		}
	}
	f.flags.given = append(f.flags.given, config.Flag{Name: f.name, Key: key, Value: value})
	return nil
}

// String implements pflag.Value.
func (f *keyFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *keyFlag) Type() string { return "text" }

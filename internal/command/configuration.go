package command

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/config"
)

// Configuration are the flags of verbs that need the whole configuration. Those
// that set a key are handed on in the order in which they were given.
type Configuration struct {
	file  string
	given []config.Flag
}

// KeyFlag is a short way to set a common key; --set takes them all.
type KeyFlag struct{ Name, Short, Key, Usage string }

// commonKeys are those that every program reads.
var commonKeys = []KeyFlag{
	{"socket", "", "api.socket", "`PATH` of the API's unix socket"},
	{"log-level", "", "log.level", "log messages of this `LEVEL` and above: debug, info, warn or error"},
}

// Register adds the flags to a command, with those for further keys.
func (c *Configuration) Register(cmd *cobra.Command, further ...KeyFlag) {
	cmd.Flags().StringVarP(&c.file, "config", "c", "", "read the configuration from YAML `FILE`")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	keys := append(further, commonKeys...)
	for _, f := range keys {
		cmd.Flags().VarP(&keyValue{c, "--" + f.Name, f.Key}, f.Name, f.Short, f.Usage)
	}
	cmd.Flags().Var(&keyValue{flags: c, name: "--set"}, "set", "set any configuration key, as in `KEY=VALUE`; may be repeated")
	completeKeys(cmd, keys)
}

// completeKeys has a shell offer what the flags take.
func completeKeys(cmd *cobra.Command, flags []KeyFlag) {
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
	for _, f := range flags {
		if len(words[f.Key]) > 0 {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words[f.Key], cobra.ShellCompDirectiveNoFileComp))
		}
	}
	_ = cmd.RegisterFlagCompletionFunc("set", cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace))
}

// Load reads the configuration. What is odd but no error goes to stderr.
func (c *Configuration) Load(stderr io.Writer) (config.Config, config.Origins, error) {
	for _, warning := range config.UnknownEnv(os.Environ()) {
		fmt.Fprintf(stderr, "waymark: warning: %s\n", warning)
	}
	return config.Load(config.Sources{File: c.file, Env: os.Environ(), Flags: c.given})
}

// keyValue is a flag that sets a key; without a key it is --set.
type keyValue struct {
	flags     *Configuration
	name, key string
}

// Set implements pflag.Value.
func (f *keyValue) Set(text string) error {
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
func (f *keyValue) String() string { return "" }

// Type implements pflag.Value.
func (f *keyValue) Type() string { return "text" }

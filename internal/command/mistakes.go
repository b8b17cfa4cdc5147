package command

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waymark-net/waymark/internal/filter"
	"github.com/waymark-net/waymark/internal/suggest"
)

// clarify words what the command-line library refuses, with what to type instead.
// The command is the one that args were meant for.
func clarify(cmd *cobra.Command, args []string, err error) error {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	verb := verbOf(cmd)
	switch {
	case errors.As(err, &unknown) && !cmd.HasParent():
		return errors.New(unknownFlag(cmd, args, unknown))
	case errors.As(err, &unknown):
		return fmt.Errorf("%s: %s", verb, unknownFlag(cmd, args, unknown))
	case errors.As(err, &missing):
		return fmt.Errorf("%s: missing value after %s", verb, flagWithArgument(missing.GetFlag()))
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		return fmt.Errorf("%s: --%s %s: %s", verb, flag.Name, invalid.GetValue(), invalidValue(flag, invalid.Unwrap()))
	}
	return err
}

// verbOf is a command without the name of the program.
func verbOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// flagWithArgument is a flag as the help shows it: --since TIME.
func flagWithArgument(flag *pflag.Flag) string {
	argument, _ := pflag.UnquoteUsage(flag)
	if name, ok := ArgumentNames[argument]; ok {
		argument = name
	}
	return "--" + flag.Name + " " + argument
}

// invalidValue says what a flag takes.
func invalidValue(flag *pflag.Flag, cause error) string {
	switch flag.Value.Type() {
	case "int", "uint64":
		return "write a whole number, such as 20"
	case "bool":
		return "write true or false, or the flag alone"
	}
	return cause.Error()
}

// meantFlags are flags of other tools, and what they are called here.
var meantFlags = map[string]string{
	"json": "-o json", "jsonl": "-o jsonl", "csv": "-o csv", "table": "-o table", "format": "--output",
	"count": "--limit", "top": "--limit", "max": "--limit", "order": "--sort", "group": "--by", "group-by": "--by",
	"from": "--since", "last": "--since", "watch": "--follow", "live": "--follow", "V": "--version", "v": "--version", "r": "--read",
	"duration": "--for", "timeout": "--for", "iface": "--interface", "dev": "--interface", "file": "--config",
}

// unknownFlag says which flag there is instead of one that there is not.
func unknownFlag(cmd *cobra.Command, args []string, e *pflag.NotExistError) string {
	name := e.GetSpecifiedName()
	typed := "--" + name
	if e.GetSpecifiedShortnames() != "" {
		typed = "-" + name
	}
	text := "unknown flag " + typed
	if asks := cmd.Flags().Lookup("filter") != nil; asks {
		field := name
		if name == "i" {
			field = "iface"
		}
		if _, err := filter.Parse(field); err == nil || isField(field) {
			return fmt.Sprintf("%s: fields are part of the filter: %s %s", text, cmd.CommandPath(), strings.TrimSpace(field+" "+valueOf(args, typed)))
		}
	}
	if typed == "-i" || typed == "--interface" {
		return text + ": only run takes interfaces; the agent counts on those that it was started with"
	}
	if meant := meantFlags[name]; meant != "" && hasFlag(cmd, meant) {
		return text + ": did you mean " + meant + "?"
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if near := suggest.Nearest(name, known); near != "" {
		return text + ": did you mean --" + near + "?"
	}
	return text
}

func isField(name string) bool {
	return slices.ContainsFunc(filter.Fields(), func(f filter.Field) bool {
		return f.Name == name || slices.Contains(f.Aliases, name)
	})
}

// hasFlag reports whether a command has the flag of -o json or --limit.
func hasFlag(cmd *cobra.Command, text string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(text, "-"), " ")
	if len(name) == 1 {
		return cmd.Flags().ShorthandLookup(name) != nil
	}
	return cmd.Flags().Lookup(name) != nil
}

// valueOf is what stands behind a flag.
func valueOf(args []string, flag string) string {
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value
		}
		if a == flag && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			return args[i+1]
		}
	}
	return ""
}

// meantArguments are what an argument was likely meant for where a command takes
// none, or no further one.
var meantArguments = map[string]string{
	"run":          "interfaces are named with -i: waymark run -i %s",
	"status":       "for the flows of an interface: waymark flows iface %s",
	"config dump":  "a file is named with --config: waymark config dump --config %s",
	"config check": "check takes one file",
	"decode":       "decode takes one file",
	"doctor":       "doctor takes one interface",
	"hints":        "hints takes one interface",
}

// arguments says of wrong ones which, and what is right.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		verb := verbOf(cmd)
		for n := len(args) - 1; n >= 0; n-- {
			if check(cmd, args[:n]) != nil {
				continue
			}
			hint := "write it like: " + cmd.UseLine()
			if meant, ok := meantArguments[verb]; ok {
				hint = meant
				if strings.Contains(meant, "%s") {
					hint = fmt.Sprintf(meant, args[n])
				}
			}
			return fmt.Errorf("%s: unexpected argument %q: %s", verb, args[n], hint)
		}
		usage := strings.ReplaceAll(cmd.UseLine(), " [flags]", "")
		if cmd.Example != "" {
			example, _, _ := strings.Cut(strings.TrimSpace(cmd.Example), "\n")
			usage += ", such as: " + example
		}
		return fmt.Errorf("%s: missing argument: %s", verb, usage)
	}
}

// meantCommands are words that users try, and the command that does it.
var meantCommands = map[string]string{
	"start": "waymark run", "agent": "waymark run", "daemon": "waymark run", "monitor": "waymark top", "watch": "waymark top",
	"show": "waymark flows", "list": "waymark flows", "ls": "waymark flows", "conversations": "waymark flows --by conversation", "hosts": "waymark flows --by pair",
	"capture": "waymark flows --read FILE, or waymark decode FILE", "read": "waymark flows --read FILE", "interfaces": "waymark status",
	"check": "waymark doctor, or waymark config check FILE", "dump": "waymark config dump", "pdm": "waymark delays", "latency": "waymark delays",
	"stats": "waymark status", "bench": "waymark-bench", "reload": "systemctl reload waymark", "restart": "systemctl restart waymark",
	"stop": "systemctl stop waymark, or the signal SIGTERM to the agent",
}

// UnknownCommand says which command there is instead.
func UnknownCommand(parent *cobra.Command, args []string) error {
	word := args[0]
	text := fmt.Sprintf("unknown command %q", strings.TrimPrefix(parent.CommandPath()+" "+word, parent.Root().Name()+" "))
	known := Verbs(parent)
	near := suggest.Nearest(word, known)
	for _, k := range known {
		if near == "" && len(word) > 2 && strings.HasPrefix(k, word) {
			near = k
		}
	}
	top := !parent.HasParent()
	switch meant := meantCommands[word]; {
	case top && meant != "":
		return fmt.Errorf("%s: did you mean %s?", text, meant)
	case top && isFilter(args):
		return fmt.Errorf("%s: did you mean waymark flows %s?", text, strings.Join(args, " "))
	case near != "":
		return fmt.Errorf("%s: did you mean %s?", text, near)
	case top && IsFile(word):
		return fmt.Errorf("%s: did you mean waymark decode %s, or waymark flows --read %s?", text, word, word)
	}
	return fmt.Errorf("%s: the commands are %s", text, strings.Join(known, ", "))
}

func isFilter(args []string) bool {
	_, err := filter.Parse(strings.Join(args, " "))
	return err == nil
}

// IsFile reports whether a file of this name can be read.
func IsFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Verbs lists what can follow a command.
func Verbs(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// ArgumentNames are for flags whose usage does not name their argument.
var ArgumentNames = map[string]string{
	"int": "N", "uint": "N", "uints": "N,…", "float": "N", "duration": "TIME", "format": "FORMAT",
	"string": "TEXT", "text": "TEXT", "strings": "TEXT,…", "stringArray": "TEXT",
}

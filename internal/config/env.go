package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/waymark-net/waymark/internal/suggest"
)

const envPrefix = "WAYMARK_"

// envName is the variable of a key: WAYMARK_FLOW_SCAN_INTERVAL for
// flow.scan_interval.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// settable are the fields that a variable or a flag sets, by key: all but those
// inside lists.
func settable(c *Config) map[string]field {
	fields := map[string]field{}
	collect(reflect.ValueOf(c).Elem(), "", fields)
	return fields
}

type field struct {
	v   reflect.Value
	tag reflect.StructTag
}

func collect(v reflect.Value, prefix string, into map[string]field) {
	for f, fv := range valuesOf(v) {
		key := join(prefix, keyOf(f))
		if fv.Kind() == reflect.Struct {
			collect(fv, key, into)
			continue
		}
		into[key] = field{fv, f.Tag}
	}
}

// setEnv applies the WAYMARK_… variables that name a key; an empty one counts as
// not set. Others are left alone: Kubernetes sets some in every container alongside
// a service of that name.
func setEnv(c *Config, origins Origins, env []string) Problems {
	values := map[string]string{}
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" && strings.HasPrefix(name, envPrefix) {
			values[name] = value
		}
	}
	var problems Problems
	fields := settable(c)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		name := envName(key)
		if value, ok := values[name]; ok {
			problems = append(problems, setOne(fields[key], origins, name, key, value)...)
		}
	}
	return problems
}

// UnknownEnv lists the WAYMARK_… variables that name no key but come near one,
// with what was meant, for a warning.
func UnknownEnv(env []string) []string {
	c := Default()
	var known []string
	for key := range settable(&c) {
		known = append(known, strings.TrimPrefix(envName(key), envPrefix)) // what all share is no likeness
	}
	slices.Sort(known)
	var out []string
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours || slices.Contains(known, rest) {
			continue
		}
		if near := suggest.Nearest(rest, known); near != "" {
			out = append(out, fmt.Sprintf("%s sets nothing; did you mean %s?", name, envPrefix+near))
		}
	}
	return out
}

// setFlags applies flags in their order. A flag that is repeated for one list
// adds to it.
func setFlags(c *Config, origins Origins, flags []Flag) Problems {
	var problems Problems
	fields := settable(c)
	given := map[string]string{}
	for _, f := range flags {
		target, ok := fields[f.Key]
		if !ok {
			known := slices.Sorted(maps.Keys(fields))
			allowed := "waymark config dump lists them"
			if near := suggest.Nearest(f.Key, known); near != "" {
				allowed = "did you mean " + near + "?"
			}
			problems = append(problems, Problem{At: f.Name, Key: f.Key, What: "unknown key", Allowed: allowed})
			continue
		}
		before, again := given[f.Key]
		if again && target.v.Kind() == reflect.Slice && !strings.HasPrefix(f.Value, "[") {
			f.Value = before + "," + f.Value
		}
		given[f.Key] = f.Value
		problems = append(problems, setOne(target, origins, f.Name, f.Key, f.Value)...)
	}
	return problems
}

// setOne reads a value from a variable or a flag: plain text for one value, a
// comma-separated or YAML list for a list.
func setOne(f field, origins Origins, name, key, value string) Problems {
	if f.v.Kind() != reflect.Slice {
		origins[key] = name
		if c := setText(f.v, f.tag, value); c != nil {
			return Problems{{At: name, Key: key, What: c.what, Allowed: c.allowed}}
		}
		return nil
	}
	node, err := listNode(value)
	if err != nil {
		p := syntaxProblem(name, []byte(value), err)
		p.At, p.Allowed = name, "write a list like [a, b]"
		return Problems{p}
	}
	for old := range origins {
		if strings.HasPrefix(old, key+"[") {
			delete(origins, old)
		}
	}
	d := decoder{where: func(*yaml.Node) string { return name }, origins: origins}
	d.value(node, f.v, f.tag, key)
	return d.problems
}

// listNode reads [a, b] as YAML and a,b as two texts.
func listNode(value string) (*yaml.Node, error) {
	if strings.HasPrefix(strings.TrimSpace(value), "[") {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(value), &doc); err != nil {
			return nil, err
		}
		return doc.Content[0], nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: part})
		}
	}
	return list, nil
}

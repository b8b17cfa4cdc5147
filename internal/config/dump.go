package config

import (
	"fmt"
	"io"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// Dump writes c as a file that Load reads back. A value that is not a default
// has a comment that says where it was set. There are no secrets to leave out:
// keys and certificates are named by path.
func Dump(w io.Writer, c Config, origins Origins) error {
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(structNode(reflect.ValueOf(c), "", origins)); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	return enc.Close()
}

// structNode is a mapping of all fields; of an Export, of the one that is set.
func structNode(v reflect.Value, key string, origins Origins) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for f, fv := range valuesOf(v) {
		if fv.Kind() == reflect.Pointer {
			if fv.IsNil() {
				continue
			}
			fv = fv.Elem()
		}
		full := join(key, keyOf(f))
		name := &yaml.Node{Kind: yaml.ScalarNode, Value: keyOf(f)}
		value := valueNode(fv, f.Tag, full, origins)
		if where, ok := origins[full]; ok && fv.Kind() != reflect.Struct {
			value.LineComment = where
			if value.Kind == yaml.SequenceNode && value.Style != yaml.FlowStyle {
				name.LineComment, value.LineComment = where, ""
			}
		}
		n.Content = append(n.Content, name, value)
	}
	return n
}

func valueNode(v reflect.Value, tag reflect.StructTag, key string, origins Origins) *yaml.Node {
	switch v.Kind() {
	case reflect.Struct:
		return structNode(v, key, origins)
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		short := tag.Get("short")
		if v.Type().Elem().Kind() != reflect.Struct || v.Len() == 0 || short != "" {
			n.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			if short != "" {
				n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: shortText(v.Index(i), short)})
				continue
			}
			n.Content = append(n.Content, valueNode(v.Index(i), tag, fmt.Sprintf("%s[%d]", key, i), origins))
		}
		return n
	case reflect.String:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v.String()}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: text(v, tag)}
	}
}

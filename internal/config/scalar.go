package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// complaint is what is wrong with a value, before it is known where it stands.
type complaint struct{ what, allowed string }

var durationType = reflect.TypeFor[time.Duration]()

// setText reads one value from text, as it stands in YAML, a variable, a flag or
// a default tag, and checks it against the tags of its field.
func setText(v reflect.Value, tag reflect.StructTag, text string) *complaint {
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return &complaint{fmt.Sprintf("%q is not a duration", text), "write it like 500ms, 10s or 1m30s"}
		}
		v.SetInt(int64(d))
		return checkRange(v, tag, text)
	case tag.Get("kind") == "size":
		n, err := parseSize(text)
		if err != nil {
			return &complaint{err.Error(), "write bytes like 65536, 64KiB or 16MiB"}
		}
		if v.OverflowUint(n) {
			return &complaint{text + " is out of range", allowed(v.Type(), tag)}
		}
		v.SetUint(n)
		return checkRange(v, tag, text)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return checkText(tag, text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return &complaint{fmt.Sprintf("%q is neither true nor false", text), ""}
		}
		v.SetBool(text == "true")
		return nil
	default:
		return setNumber(v, tag, text)
	}
}

func setNumber(v reflect.Value, tag reflect.StructTag, text string) *complaint {
	digits := strings.ReplaceAll(text, "_", "")
	// Wide enough for every field here, and signed, so that -1 is a number out
	// of range and not something else.
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return &complaint{fmt.Sprintf("%q is not a whole number", text), allowed(v.Type(), tag)}
	}
	if v.CanInt() && v.OverflowInt(n) || v.CanUint() && (n < 0 || v.OverflowUint(uint64(n))) {
		return &complaint{text + " is out of range", allowed(v.Type(), tag)}
	}
	if v.CanInt() {
		v.SetInt(n)
	} else {
		v.SetUint(uint64(n))
	}
	return checkRange(v, tag, text)
}

// checkRange compares with the min and max tags, which are texts of v's own form.
func checkRange(v reflect.Value, tag reflect.StructTag, text string) *complaint {
	low, high := bound(v.Type(), tag, "min"), bound(v.Type(), tag, "max")
	if low.IsValid() && less(v, low) || high.IsValid() && less(high, v) {
		return &complaint{text + " is out of range", allowed(v.Type(), tag)}
	}
	return nil
}

// bound reads the min or max tag; the zero Value when there is none.
func bound(t reflect.Type, tag reflect.StructTag, name string) reflect.Value {
	text, ok := tag.Lookup(name)
	if !ok {
		return reflect.Value{}
	}
	v := reflect.New(t).Elem()
	// Only the kind matters here: a bound has no bounds.
	kind := reflect.StructTag(`kind:"` + tag.Get("kind") + `"`)
	if c := setText(v, kind, text); c != nil {
		panic("config: tag " + name + ": " + c.what)
	}
	return v
}

func less(a, b reflect.Value) bool {
	if a.CanInt() {
		return a.Int() < b.Int()
	}
	return a.Uint() < b.Uint()
}

func checkText(tag reflect.StructTag, text string) *complaint {
	textType := reflect.TypeFor[string]()
	if words, ok := tag.Lookup("oneof"); ok && !slices.Contains(strings.Fields(words), text) {
		return &complaint{fmt.Sprintf("%q is not known", text), allowed(textType, tag)}
	}
	if kind, ok := kinds[tag.Get("kind")]; ok {
		if err := kind.check(text); err != nil {
			return &complaint{err.Error(), allowed(textType, tag)}
		}
	}
	return nil
}

// allowed says which values a field takes, for messages.
func allowed(t reflect.Type, tag reflect.StructTag) string {
	if words := strings.Fields(tag.Get("oneof")); len(words) > 0 {
		return "allowed: " + orList(words)
	}
	if kind, ok := kinds[tag.Get("kind")]; ok {
		return kind.allowed
	}
	if t.Kind() == reflect.Bool {
		return "allowed: true or false"
	}
	if r := rangeText(t, tag); r != "" {
		return "allowed: " + r
	}
	return ""
}

// rangeText says which numbers a field takes: "1 to 10", "at least 1".
func rangeText(t reflect.Type, tag reflect.StructTag) string {
	low, hasLow := tag.Lookup("min")
	high, hasHigh := tag.Lookup("max")
	if !hasLow && t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64 {
		low, hasLow = "0", true
	}
	if !hasHigh && t.Kind() == reflect.Uint32 {
		high, hasHigh = "4294967295", true
	}
	switch {
	case hasLow && hasHigh:
		return low + " to " + high
	case hasLow:
		return "at least " + low
	case hasHigh:
		return "at most " + high
	}
	return ""
}

// orList joins words as a sentence does: a, b or c.
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// text is the inverse of setText.
func text(v reflect.Value, tag reflect.StructTag) string {
	switch {
	case v.Type() == durationType:
		return formatDuration(time.Duration(v.Int()))
	case tag.Get("kind") == "size":
		return formatSize(v.Uint())
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanUint():
		return strconv.FormatUint(v.Uint(), 10)
	case v.Kind() == reflect.Bool:
		return strconv.FormatBool(v.Bool())
	default:
		return v.String()
	}
}

// formatDuration drops the zero units that time.Duration prints: 1m, not 1m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

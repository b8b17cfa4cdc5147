package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What Dump writes, Load reads back, whatever the values.
func TestDumpLoadIsIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "waymark.yaml")
	rapid.Check(t, func(t *rapid.T) {
		c := Default()
		drawStruct(t, reflect.ValueOf(&c).Elem())
		if len(checkWhole(&c, nil)) > 0 {
			t.Skip("impossible together")
		}
		var b bytes.Buffer
		if err := Dump(&b, c, Origins{"flow.sampling": "somewhere:1:1", "export": "x"}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		got, _, err := Load(Sources{File: path})
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if diff := cmp.Diff(c, got); diff != "" {
			t.Fatalf("(-want +got):\n%s\n%s", diff, b.String())
		}
	})
}

// drawStruct gives every field a value that its tags allow.
func drawStruct(t *rapid.T, v reflect.Value) {
	for f, fv := range valuesOf(v) {
		switch fv.Kind() {
		case reflect.Struct:
			drawStruct(t, fv)
		case reflect.Slice:
			n := rapid.IntRange(0, 3).Draw(t, f.Name)
			fv.Set(reflect.MakeSlice(fv.Type(), n, n))
			for i := range n {
				if fv.Type().Elem() == exportType {
					drawExport(t, fv.Index(i))
				} else if fv.Type().Elem().Kind() == reflect.Struct {
					drawStruct(t, fv.Index(i))
				} else {
					drawScalar(t, f, fv.Index(i))
				}
			}
		default:
			drawScalar(t, f, fv)
		}
	}
}

func drawExport(t *rapid.T, v reflect.Value) {
	f := v.Field(rapid.IntRange(0, v.NumField()-1).Draw(t, "exporter"))
	f.Set(reflect.New(f.Type().Elem()))
	drawStruct(t, f.Elem())
}

func drawScalar(t *rapid.T, f reflect.StructField, v reflect.Value) {
	texts := map[string][]string{
		"glob":      {"eth0", "veth*", "no", "10", "null", "#1", "[ab]"},
		"netns":     {"all", "blue", "true"},
		"file":      {"-", "flows.jsonl", " a\tb", "ünïcode", "1e3", "~"},
		"directory": {"", "/var/lib/waymark", "/tmp/a b: c"},
		"socket":    {"/run/waymark/agent.sock", "/tmp/a b: c"},
		"listen":    {":9474", "[::1]:1", "127.0.0.1:2"},
		"broker":    {"kafka:9092", "[::1]:1"},
		"loopback":  {"", "[::1]:3", "localhost:4"},
		"collector": {"udp://[::1]:4739", "tls://host:1"},
		"endpoint":  {"http://127.0.0.1:4318", "https://[2001:db8::1]/otlp"},
		"analyzer":  {"https://[2001:db8::1]:8476"},
		"prefix6":   {"2001:db8::/32", "2001:db8:1::/48", "fd00::1", "ff0e::/16"},
		"proto":     {"any", "tcp", "58"},
		"filter":    {"", "port 22 or proto tcp"},
		"speed":     {"", "100Mbit", "2.5Gbit"},
		"percent":   {"0.5%", "100%"},
		"ports":     {"53", "0", "8000-8099"},
		"":          {"", "x", "0x10", "- a", "yes"},
	}[f.Tag.Get("kind")]
	if words := f.Tag.Get("oneof"); words != "" {
		texts = strings.Fields(words)
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString(rapid.SampledFrom(texts).Draw(t, f.Name))
	case v.Kind() == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, f.Name))
	case f.Name == "RingSize":
		v.SetUint(1 << rapid.IntRange(12, 30).Draw(t, f.Name))
	case v.CanInt():
		v.SetInt(rapid.Int64Range(bound(v.Type(), f.Tag, "min").Int(), bound(v.Type(), f.Tag, "max").Int()).Draw(t, f.Name))
	default:
		low, high := uint64(0), uint64(1<<32-1)
		if b := bound(v.Type(), f.Tag, "min"); b.IsValid() {
			low = b.Uint()
		}
		if b := bound(v.Type(), f.Tag, "max"); b.IsValid() {
			high = b.Uint()
		}
		v.SetUint(rapid.Uint64Range(low, high).Draw(t, f.Name))
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1, "4096": 4096, "4K": 4096, "4KB": 4096, "4KiB": 4096, "16MiB": 16 << 20, "3G": 3 << 30, "1T": 1 << 40, "7B": 7,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "K", "iB", "1iB", "-1", "1.5M", "4 K", "4k", "99999999999T", "18446744073709551616"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift") << rapid.IntRange(0, 63).Draw(t, "back")
		if got, err := parseSize(formatSize(n)); err != nil || got != n {
			t.Fatalf("parseSize(formatSize(%d) = %q) = %d, %v", n, formatSize(n), got, err)
		}
	})
}

// Whatever a file holds, Load answers with a Config or with Problems that name
// the file.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Default()
		for _, p := range decodeFile(data, "waymark.yaml", &c, Origins{}) {
			if !strings.HasPrefix(p.At, "waymark.yaml") || p.What == "" {
				t.Errorf("problem without place or matter: %+v", p)
			}
		}
	})
}

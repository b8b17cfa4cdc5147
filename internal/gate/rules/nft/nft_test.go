package nft

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waymark-net/waymark/internal/gate/rules"
)

var update = flag.Bool("update", false, "write the golden file again")

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// What nft 1.0.6 lists, as rules.
func TestTranslate(t *testing.T) {
	text, err := os.ReadFile("testdata/ruleset.nft")
	if err != nil {
		t.Fatal(err)
	}
	got, problems, err := Translate(string(text), "", now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := rules.Parse("translated", got, rules.Options{}); err != nil {
		t.Errorf("%s\n%v", got, err)
	}
	if comments := strings.Count(got, "# not translated: "); comments != len(problems) {
		t.Errorf("%d comments for %d problems", comments, len(problems))
	}
	const golden = "testdata/ruleset.rules"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s", diff)
	}
}

// Which chain, and what cannot be read.
func TestChains(t *testing.T) {
	const two = "table ip a {\n chain x {\n type filter hook input priority 0; policy accept;\n tcp dport 22 drop\n }\n chain y {\n type filter hook prerouting priority 0; policy drop;\n }\n}\n"
	for name, want := range map[string]string{"x": "drop ip tcp dst port 22\n", "a/y": "drop ip\n"} {
		got, problems, err := Translate(two, name, now)
		if err != nil || len(problems) > 0 || !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s%v, %v", name, got, problems, err)
		}
	}
	for text, want := range map[string]string{
		two: "several chains are for incoming packets: choose one with --chain: a/x, a/y", "": "no chain with a hook",
		"-P INPUT ACCEPT": "line 1: expected a table", "table ip a {\n chain x {\n": "line 2: this brace is never closed",
		"table inet a { chain x { type filter hook output priority 0; } }": "choose one with --chain: a/x", "table": "line 1: expected table",
	} {
		if _, _, err := Translate(text, "", now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzTranslate(f *testing.F) {
	text, err := os.ReadFile("testdata/ruleset.nft")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) {
		got, _, err := Translate(text, "", now)
		if err != nil {
			return
		}
		if _, _, err := rules.Parse("translated", got, rules.Options{}); err != nil {
			t.Fatalf("%s\n%v", got, err)
		}
	})
}

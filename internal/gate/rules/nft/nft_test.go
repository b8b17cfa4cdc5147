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

// What nft list set and nft list sets print.
func TestSets(t *testing.T) {
	const text = `table inet t {
	set b {
		type ipv4_addr
		flags interval,timeout
		counter
		elements = { 10.1.0.0/16 counter packets 0 bytes 0 timeout 1h expires 59m59s, 10.2.3.4 comment "a, b" counter packets 0 bytes 0,
			     192.0.2.1-192.0.2.3 }
	}
	set six { typeof ip6 saddr; elements = { 2001:db8::/32 } }
	set ports { type inet_service; elements = { 22, 80-90, https } }
	set dyn { type ipv4_addr; size 100; flags dynamic,timeout; timeout 5m; }
	set pairs { type ipv4_addr . inet_service; elements = { 192.0.2.1 . 80 } }
}
table ip other {
	set b { type ipv4_addr; elements = { 192.0.2.9 } }
}
`
	const want = `set b { 10.1.0.0/16 until 2026-03-01T10:59:59Z, 10.2.3.4, 192.0.2.1, 192.0.2.2/31 }
set six { 2001:db8::/32 }
set ports { 22, 80-90, 443 }
# not translated: line 11: set dyn: the set dyn has no elements
# not translated: line 12: set pairs: the set pairs is of type ipv4_addr . inet_service, which rules do not have
# not translated: line 15: set b: another table has a set b
`
	got, problems, err := Translate(text, "", now)
	if diff := cmp.Diff(want, got); err != nil || diff != "" || len(problems) != 3 {
		t.Errorf("%v, %v: %s", err, problems, diff)
	}
	if _, _, err := Translate(text, "input", now); err == nil || !strings.Contains(err.Error(), "no chain with a hook") {
		t.Error(err)
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

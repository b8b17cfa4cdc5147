package rules

import (
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var now = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

// files stand in for block lists.
var files = map[string]string{
	"drop.txt": "; Spamhaus DROP List\n203.0.113.0/24 ; SBL1\n198.51.100.0/25 ; SBL2\n",
	"none.txt": "# nothing\n",
	"bad.txt":  "192.0.2.1\n\n  192.0.2.1/24\nwww.example.com\n",
}

func open(name string) (io.ReadCloser, error) {
	text, ok := files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(strings.NewReader(text)), nil
}

func parse(t *testing.T, text string) (*Ruleset, []Warning) {
	t.Helper()
	rs, warnings, err := Parse("f", text, Options{Now: now, Open: open})
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	return rs, warnings
}

const allSets = "set a { 192.0.2.0/24, 2001:db8:bad::/48 }\nset p { 80, 443, 8000-8099 }\nset l from \"drop.txt\"\n"

// What can be written, and its canonical form.
func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"pass  src 192.0.2.7":                                            "pass src 192.0.2.7",
		"drop  src @a":                                                   "drop src @a",
		"drop  udp dst port 1900 len > 400":                              "drop udp dst port 1900 len 401-65535",
		"limit 10000/s per src udp dst port 53":                          "limit 10000/s per src udp dst port 53",
		"limit 10k packets/s burst 20k per src/24 ip6":                   "limit 10000/s burst 20000 per src/24/64 ip6",
		"limit 5MB/s per src/16/48 tcp":                                  "limit 5000000 bytes/s per src/16/48 tcp",
		"limit 1000 bytes/s burst 64KB":                                  "limit 1000 bytes/s burst 64000 bytes",
		"limit 10/second per rule icmp":                                  "limit 10/s icmp",
		"drop tcp flags & (syn|fin) == syn|fin":                          "drop tcp flags fin+syn",
		"drop tcp flags & (fin|syn|rst|ack) == syn":                      "drop tcp flags syn/fin+syn+rst+ack",
		"drop tcp flags none/syn+ack":                                    "drop tcp flags none/syn+ack",
		"drop tcp flags syn":                                             "drop tcp flags syn",
		"drop icmp6 type 128 iface eth0":                                 "drop iface eth0 icmpv6 type 128",
		"drop icmp type 8":                                               "drop icmp type 8",
		"drop src not @a vlan 100 dscp ef fragment for 1h dry-run":       "drop vlan 100 dscp 46 src not @a fragment until 2026-03-01T11:00:00Z dry-run",
		"drop not src 10/8 not fragment":                                 "drop src not 10.0.0.0/8 not fragment",
		"drop not src not 10/8":                                          "drop src 10.0.0.0/8",
		"count":                                                          "count",
		"sample every 100 udp":                                           "sample every 100 udp",
		"syncookie dst 192.0.2.1 tcp dst port https":                     "syncookie tcp dst 192.0.2.1 dst port 443",
		"no-flow src 192.0.2.1-192.0.2.2":                                "no-flow src 192.0.2.1,192.0.2.2",
		"only-flow tcp,udp and dport { 443, 80, 81 }":                    "only-flow proto tcp,udp dst port 80-81,443",
		"drop tcp src port != 1-1023,@p dst port @p":                     "drop tcp src port not @p,1-1023 dst port @p",
		"drop proto not tcp,udp":                                         "drop proto not tcp,udp",
		"DROP UDP SRC 10/8":                                              "drop udp src 10.0.0.0/8",
		"drop proto 41 len <= 100":                                       "drop proto ipv6 len 0-100",
		"drop src 10.0.0.0/8,10.1.0.0/16,10.0.0.1":                       "drop src 10.0.0.0/8",
		"drop iface eth[01],veth* not udp":                               "drop iface eth[01],veth* proto not udp",
		`drop iface "tcp"`:                                               `drop iface "tcp"`,
		"drop sctp dst port 5000 until 2030-01-01T00:00:00Z # a comment": "drop sctp dst port 5000 until 2030-01-01T00:00:00Z",
	} {
		rs, _ := parse(t, allSets+text)
		if got := rs.Rules[0].Text; got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
			continue
		}
		again, _ := parse(t, rs.String())
		// Positions differ, and what they mean is the same.
		for _, one := range []*Ruleset{rs, again} {
			for _, s := range one.Sets {
				s.Pos = Position{}
			}
			for _, r := range one.Rules {
				r.Pos = Position{}
			}
		}
		if diff := cmp.Diff(rs, again, comparePrefixes); diff != "" {
			t.Errorf("%s: printed and read again: %s", text, diff)
		}
	}
}

// What is wrong, and where: line:column and a part of the message.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"droq src 192.0.2.1":                     "1:1: unknown action droq: did you mean drop?",
		"accept src 192.0.2.1":                   "1:1: unknown action accept: did you mean pass?",
		"src 192.0.2.1 drop":                     "1:1: a line begins with what to do",
		"drop scr 192.0.2.1":                     "1:6: unknown condition scr: did you mean src?",
		"drop 192.0.2.1":                         "1:6: write src 192.0.2.1 or dst 192.0.2.1",
		"drop src 192.0.2.1/24":                  "1:10: bits are set after the prefix: did you mean 192.0.2.0/24, or the address 192.0.2.1?",
		"drop src www.example.com":               "names of hosts are not resolved",
		"drop udp dst prt 53":                    "1:14: prt is no address: did you mean dst port?",
		"sample evry 100 udp":                    "1:8: unknown condition evry: did you mean every?",
		"drop udp for 1h,2h":                     "1:16: unexpected , behind 1h: it takes no list here: write one value, or one rule for each",
		"limit 100/s per src/24,32":              "unexpected , behind src/24: it takes no list here",
		"set s { 192.0.2.1 fro 1h }":             "1:19: fro is no address: did you mean for, as in 192.0.2.66 for 1h?",
		"drop src 443":                           "did you mean port 443?",
		"drop tcp dst port 192.0.2.1":            "is an address",
		"drop dst port 80":                       "1:6: ports need a protocol that has them",
		"drop icmp dst port 80":                  "ports need a protocol",
		"drop proto not tcp dst port 80":         "ports need a protocol",
		"drop type 8":                            "a type needs icmp or icmp6",
		"drop tcp type 8":                        "a type needs icmp or icmp6",
		"drop udp flags syn":                     "flags need tcp",
		"drop tcp flags none":                    "this holds for every packet",
		"drop tcp flags syn+ack/syn":             "never true",
		"drop tcp flags syn,ack":                 "write syn+ack for both",
		"drop tcp port 80":                       "write src port or dst port",
		"drop tcp dst port 80 or 443":            "write a list",
		"drop tcp dst port 99999":                "99999 is too large",
		"drop tcp dst port 90-80":                "did you mean 80-90?",
		"drop tcp dst port @a":                   "the set a has addresses",
		"drop src @p":                            "the set p has ports",
		"drop src @b":                            "the set b is not defined",
		"drop src @":                             "the name of a set behind @",
		"drop iface sixteen_bytes_16":            "names have at most 15 bytes",
		"drop src @abs\nset abc { 192.0.2.1 }":   "1:10: the set abs is not defined: did you mean @abc?",
		"set a { 192.0.2.2 }":                    "is defined in",
		"set e { }":                              "the set e is empty",
		"set e { 80, 192.0.2.1 }":                "1:13: this is an address, and the set has ports",
		"set e { 192.0.2.1, 80 }":                "this is a port, and the set has addresses",
		"set e {\n 192.0.2.1\npass":              "1:7: this brace is never closed",
		`set e from "missing.txt"`:               "1:12: read the block list: open missing.txt",
		`set e from "none.txt"`:                  "the block list has no address",
		`set e from "bad.txt"`:                   "bad.txt:3:3: bits are set after the prefix",
		"ip drop":                                "a line begins with what to do",
		"drop ip src 2001:db8::1":                "1:9: src has no address of IPv4",
		"drop src 192.0.2.1 dst 2001:db8::1":     "1:20: dst has no address of IPv4",
		"drop icmp6 type 1 src 192.0.2.1":        "src has no address of IPv6",
		"drop ip6 icmp":                          "icmp is of IPv4: write icmp6",
		"drop src 192.0.2.1 src 192.0.2.2":       "1:20: src is given twice",
		"drop not iface eth0":                    "iface cannot be negated",
		"drop not":                               `expected a condition after "not"`,
		"drop len > 65535":                       "never true",
		"limit 10 per src":                       "1:7: expected a rate, such as",
		"limit 10/m":                             "rates are per second",
		"limit 10Mbit/s":                         "write bytes instead of bits",
		"limit 10/s per src/48":                  "write the lengths of both, such as per src/24/48",
		"limit 10/s per dst":                     "expected per rule, per src",
		"limit 10/s burst x":                     "such as burst 500",
		"drop for ever":                          "expected a duration",
		"drop until tomorrow":                    "expected a time",
		"syncookie dst 192.0.2.1":                "syncookie protects ports of a service",
		"drop src 192.0.2.1; drop src 192.0.2.2": "write one rule per line",
		"drop src 192.0.2.1 drop src 192.0.2.2":  "write one rule per line",
		`drop iface "eth0`:                       "1:12: this quote is never closed",
		"drop state established":                 "the gate keeps no connections",
		"drop src fe80::1%eth0":                  "write fe80::1 and iface eth0",
		"drop src 192.0.2.9-192.0.2.1":           "did you mean 192.0.2.1-192.0.2.9?",
		"drop src [2001:db8::1]:443":             "this is an address with a port",
		"drop vlan 4096":                         "up to 4095",
		"sample every 0":                         "such as every 100",
	} {
		prefix := ""
		if strings.Contains(text, "@a") || strings.Contains(text, "@p") || strings.HasPrefix(text, "set a {") {
			text, prefix = text+"\n"+allSets, ""
		}
		_, _, err := Parse("f", prefix+text, Options{Now: now, Open: open})
		if err == nil {
			t.Errorf("%s: no error", text)
			continue
		}
		if got := err.Error(); !strings.Contains(strings.ReplaceAll(got, "f:", ""), want) {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
}

// All errors are reported, in the order of the text, each with its line.
// Nothing that a terminal would obey reaches it.
func TestErrorsArePrintable(t *testing.T) {
	_, _, err := Parse("f", "drop \x1b[31mred\ndrop src @a\x07b\nset s { \u202e }\n", Options{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, r := range err.Error() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%q in %q", r, err)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	rs, _ := parse(t, "\ufeffdrop src 192.0.2.1\r\npass\r\n")
	if got, want := rs.String(), "drop src 192.0.2.1\npass\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAllErrors(t *testing.T) {
	_, _, err := Parse("gate.rules", "droq\npass\n\tdrop src @x\nset y from \"bad.txt\"\ndrop tcp dst prot 80\n", Options{Now: now, Open: open})
	want := `bad.txt:3:3: bits are set after the prefix: did you mean 192.0.2.0/24, or the address 192.0.2.1?
    192.0.2.1/24
    ^^^^^^^^^^^^
bad.txt:4:1: expected an address, a prefix or a set, such as 192.0.2.1, 10/8, 2001:db8::/32 or @blocked; names of hosts are not resolved
  www.example.com
  ^^^^^^^^^^^^^^^
gate.rules:1:1: unknown action droq: did you mean drop?
  droq
  ^^^^
gate.rules:3:11: the set x is not defined: define it in a line of its own, such as set x { 192.0.2.0/24 }
   drop src @x
            ^^
gate.rules:5:14: prot is no address: did you mean dst port?
  drop tcp dst prot 80
               ^^^^`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if all := Errors(nil); !errors.As(err, &all) || len(all) != 5 {
		t.Errorf("%d errors", len(all))
	}
}

// What is no rule file gives errors of bounded length.
func TestErrorsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"word": strings.Repeat("x", 1e6), "zeros": strings.Repeat("\x00", 1e6), "address": "drop src " + strings.Repeat("9", 1e6), "set": "drop src @" + strings.Repeat("s", 1e6),
		"lines": strings.Repeat("x\n", 1e5), "list": "drop tcp dst port " + strings.Repeat("x", 1e6), "quote": `drop iface "` + strings.Repeat("é", 1e6), "behind": "drop udp " + strings.Repeat("tcp ", 1e5),
	} {
		_, _, err := Parse("f", text, Options{Now: now, Open: open})
		if err == nil || len(err.Error()) > 20000 || !utf8.ValidString(err.Error()) {
			t.Errorf("%s: %.300s", name, err)
		}
		if name == "lines" && !strings.HasSuffix(err.Error(), "f:101: 99900 further errors are not shown: is this a rule file?") {
			t.Errorf("%s", err.Error()[len(err.Error())-200:])
		}
	}
	endless, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer endless.Close()
	if _, err := ReadText("rules", endless); err == nil || err.Error() != "rules is larger than 64 MiB: is this a rule file?" {
		t.Error(err)
	}
}

// The members of a set cover what was written, no longer than it was written for.
func TestMembers(t *testing.T) {
	rs, _ := parse(t, "set s {\n10.0.0.0/8 for 1h, 10.1.0.0/16 for 30m # shorter\n10.2.0.0/16 for 2h\n10.2.1.0/24 for 1h, 10.3.0.1, 10.3.0.1 for 1h\n}\ndrop src @s")
	const want = "set s { 10.0.0.0/8 until 2026-03-01T11:00:00Z, 10.2.0.0/16 until 2026-03-01T12:00:00Z, 10.3.0.1 }"
	if got := rs.Sets[0].String(); got != want {
		t.Errorf("%s", got)
	}
}

// An ID stays when a rule moves or is read later; two equal rules have two.
func TestIDs(t *testing.T) {
	first, _ := parse(t, "drop udp for 1h\npass tcp\npass tcp")
	later, _, err := Parse("g", "pass tcp\ndrop  udp for 1h\n", Options{Now: now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	if first.Rules[0].ID != later.Rules[1].ID || first.Rules[1].ID != later.Rules[0].ID || first.Rules[1].ID == first.Rules[2].ID {
		t.Errorf("%+v and %+v", first.Rules, later.Rules)
	}
}

func TestLists(t *testing.T) {
	for text, want := range map[string]string{
		"# FireHOL\n192.0.2.1\n192.0.2.0/24\n":       "192.0.2.0/24",
		"192.0.2.4-192.0.2.7\n192.0.2.8 - 192.0.2.9": "192.0.2.4/30, 192.0.2.8/31",
		"203.0.113.0/24 ; SBL1":                      "203.0.113.0/24",
		"{\"cidr\":\"203.0.113.0/24\",\"sblid\":\"SBL1\"}\n{\"type\":\"metadata\",\"records\":1}":    "203.0.113.0/24",
		"create x hash:net family inet hashsize 1024\nadd x 192.0.2.0/24 timeout 60\nadd x 10.0.0.1": "10.0.0.1, 192.0.2.0/24 until 2026-03-01T10:01:00Z",
		"2001:db8::/32 # six\r\n":   "2001:db8::/32",
		"\ufeff# list\r\n192.0.2.1": "192.0.2.1",
		"\ufeff192.0.2.1\r\n":       "192.0.2.1",
	} {
		list, errs := ReadList("x", strings.NewReader(text), now)
		if got := (&Set{Name: "s", Prefixes: list}).String(); got != "set s { "+want+" }" || errs != nil {
			t.Errorf("%q: %s, %v", text, got, errs)
		}
	}
	for text, want := range map[string]string{
		"add x 192.0.2.1 nomatch":       "nomatch has no equivalent",
		"create x hash:ip,port":         "hash:ip or hash:net",
		"127.0.0.1 ads.example.com":     "unexpected ads.example.com",
		"192.0.2.1/24":                  "did you mean 192.0.2.0/24",
		strings.Repeat("<html>\n", 30):  "further lines are wrong, too",
		"add x 192.0.2.1 timeout":       "number of seconds",
		"\n" + strings.Repeat("1", 1e6): "x:2: the line is longer than 65536 bytes: is this a block list?",
		"{\"cidr\":\"203.0.113.0/99\"}": "expected an address",
	} {
		if _, errs := ReadList("x", strings.NewReader(text), now); errs == nil || !strings.Contains(errs.Error(), want) {
			t.Errorf("%q: %v", text, errs)
		}
	}
}

// What is printed is read as the same rules.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		text := ruleGen.Draw(r, "rule")
		rs, _, err := Parse("f", allSets+text, Options{Now: now, Open: open})
		if err != nil {
			return // some combinations make no sense
		}
		again, _, err := Parse("f", rs.String(), Options{Now: now, Open: open})
		if err != nil {
			r.Fatalf("%s\nprinted as\n%s\n%v", text, rs, err)
		}
		if again.String() != rs.String() || again.Rules[0].ID != rs.Rules[0].ID {
			r.Fatalf("%s\nprinted as\n%s\nthen as\n%s", text, rs, again)
		}
		before, after := *rs.Rules[0], *again.Rules[0]
		before.Pos, after.Pos = Position{}, Position{}
		if diff := cmp.Diff(before, after, comparePrefixes); diff != "" {
			r.Fatalf("%s: %s", text, diff)
		}
	})
}

func one(texts ...string) *rapid.Generator[string] { return rapid.SampledFrom(texts) }

// ruleGen writes rules, most of them correct.
var ruleGen = rapid.Custom(func(t *rapid.T) string {
	text := one("pass", "drop", "count", "sample", "sample every 10", "limit 10/s", "limit 9 bytes/s burst 70KB per src/20", "limit 7k/s per src", "no-flow", "only-flow").Draw(t, "action")
	text += " " + one("", "tcp", "udp", "icmp", "icmp6", "tcp,udp", "proto 47-50", "proto not tcp", "not icmp").Draw(t, "proto")
	for _, part := range rapid.Permutation([]*rapid.Generator[string]{
		one("", "", "src 192.0.2.1", "src not @a", "src @a,@l,10/8", "not src 2001:db8::/32", "src 192.0.2.3-192.0.2.9"),
		one("", "", "dst 192.0.2.1", "dst not @a", "dst 2001:db8::-2001:db8::ffff"),
		one("", "", "src port 80", "sport not @p,7"), one("", "", "dst port 80,81,90", "dport > 1023", "dport @p"),
		one("", "", "type 8", "type not 3-4"), one("", "", "len < 100", "len 7,9"), one("", "", "vlan 7", "vlan != 1-9"),
		one("", "", "dscp af11", "dscp not ef"), one("", "", "flags syn", "flags syn/syn+ack", "flags & ack == none"),
		one("", "", "fragment", "not fragment"), one("", "", "iface eth*", `iface "src",b`), one("", "", "for 1h"), one("", "", "dry-run"),
		one("", "", "ip", "ip6"),
	}).Draw(t, "order") {
		text += " " + part.Draw(t, "part")
	}
	return text
})

// No text is too strange to be read, and errors are in it.
func FuzzParse(f *testing.F) {
	f.Add(allSets + "drop tcp flags & (syn|fin) == syn|fin src not @a for 1h\nlimit 5MB/s burst 1 per src/24 \"x")
	f.Add("set e {\n 192.0.2.1 for 1h,, 80 }\nset f from x\n")
	f.Fuzz(func(t *testing.T, text string) {
		rs, _, err := Parse("f", text, Options{Now: now, Open: open})
		if err != nil {
			_ = err.Error()
			return
		}
		again, _, err := Parse("f", rs.String(), Options{Now: now, Open: open})
		if err != nil || again.String() != rs.String() {
			t.Fatalf("%q\nprinted as\n%s\n%v", text, rs, err)
		}
	})
}

package term

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"
	"pgregory.net/rapid"
)

func TestSI(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1: "1", 42: "42", 999: "999", 0.5: "0.50", 9.876: "9.88", 99.94: "99.9", 99.96: "100", 999.4: "999",
		999.5: "1.00k", 1000: "1.00k", 1234: "1.23k", 9994: "9.99k", 9995.1: "10.0k", 12345: "12.3k", 99949: "99.9k", 99950.1: "100k",
		123456: "123k", 999499: "999k", 999500: "1.00M", 5e9: "5.00G", 1.8446744073709552e19: "18.4E", 1e22: "10000E",
		-1: "-", math.Inf(1): "-",
	} {
		if got := SI(v); got != want {
			t.Errorf("SI(%v) = %q, want %q", v, got, want)
		}
	}
}

// Whatever the number, it takes six places at most and stays within half of a
// percent.
func TestSIIsShortAndNear(t *testing.T) {
	units := map[byte]float64{'k': 1e3, 'M': 1e6, 'G': 1e9, 'T': 1e12, 'P': 1e15, 'E': 1e18}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift")
		s := Count(n)
		if len(s) > 5 {
			t.Fatalf("Count(%d) = %q", n, s)
		}
		factor := 1.0
		digits := s
		if f, ok := units[s[len(s)-1]]; ok {
			factor, digits = f, s[:len(s)-1]
		}
		var v float64
		for i, part := range strings.SplitN(digits, ".", 2) {
			for j, c := range part {
				if i == 0 {
					v = v*10 + float64(c-'0')
				} else {
					v += float64(c-'0') / math.Pow10(j+1)
				}
			}
		}
		if math.Abs(v*factor-float64(n)) > 0.00501*float64(n) {
			t.Fatalf("Count(%d) = %q", n, s)
		}
	})
}

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "-", -1: "-", 1: "1ns", 999: "999ns", 1000: "1µs", 1234: "1.23µs", 412 * time.Microsecond: "412µs",
		999_499: "999µs", 999_500: "1.00ms", 8210 * time.Microsecond: "8.21ms", 2 * time.Second: "2s", 1500 * time.Millisecond: "1.50s",
		59*time.Second + 940*time.Millisecond: "59.9s", 59*time.Second + 990*time.Millisecond: "1m", 65 * time.Second: "1m5s", time.Hour: "1h", 3*time.Hour + 12*time.Minute + 29*time.Second: "3h12m",
		24 * time.Hour: "1d", 99 * time.Hour: "4d3h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestPercent(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0 %", 0.0001: "<0.1 %", 1: "100 %", 0.5: "50 %", 0.123: "12.3 %", 0.9999: "99.990 %", 0.999999: "99.999 %", 1.002: "100.2 %",
	} {
		if got := Percent(v); got != want {
			t.Errorf("Percent(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	for _, tt := range []struct {
		amount float64
		d      time.Duration
		want   string
	}{{1000, 2 * time.Second, "500"}, {1, 0, "-"}, {3e9, time.Second, "3.00G"}} {
		if got := Rate(tt.amount, tt.d); got != tt.want {
			t.Errorf("Rate(%v, %v) = %q, want %q", tt.amount, tt.d, got, tt.want)
		}
	}
}

func TestElide(t *testing.T) {
	for _, tt := range []struct {
		s     string
		width int
		want  string
	}{
		{"short", 5, "short"},
		{"[2001:db8:1:2:3:4:5:6]:443", 20, "[2001:db8:…:5:6]:443"},
		{"abcdef", 3, "a…f"},
		{"abcdef", 2, "a…"},
		{"abcdef", 1, "a"},
		{"abcdef", 0, ""},
		{"日本語日本語", 7, "日…語"},
	} {
		got := Elide(tt.s, tt.width)
		if got != tt.want {
			t.Errorf("Elide(%q, %d) = %q, want %q", tt.s, tt.width, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s, width := rapid.String().Draw(t, "s"), rapid.IntRange(0, 40).Draw(t, "width")
		if got := Elide(s, width); runewidth.StringWidth(got) > width {
			t.Fatalf("Elide(%q, %d) = %q, which takes %d", s, width, got, runewidth.StringWidth(got))
		}
	})
}

func sample() *Table {
	t := &Table{Columns: []Column{{Title: "NAME", Least: 6}, {Title: "ADDRESS", Least: 8}, {Title: "N", Right: true}}}
	t.Add("eth0", "2001:db8::1234:5678", "7")
	t.Add("evil\x1b[31m\tname", "10.0.0.1", "12.3k")
	t.Add("日本", "", "")
	return t
}

func TestTable(t *testing.T) {
	for _, tt := range []struct {
		width int
		want  []string
	}{
		{0, []string{
			"NAME            ADDRESS                  N",
			"eth0            2001:db8::1234:5678      7",
			"evil·[31m·name  10.0.0.1             12.3k",
			"日本",
		}},
		{30, []string{
			"NAME        ADDRESS          N",
			"eth0        2001:…:5678      7",
			"evil·…name  10.0.0.1     12.3k",
			"日本",
		}},
		{10, []string{
			"NAME    ADDRESS       N",
			"eth0    2001…678      7",
			"evi…me  10.0.0.1  12.3k",
			"日本",
		}},
	} {
		var b bytes.Buffer
		if err := sample().Write(&b, tt.width); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")); diff != "" {
			t.Errorf("width %d (-want +got):\n%s", tt.width, diff)
		}
	}
}

func TestTableTellsOfErrors(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("no /dev/full: %v", err)
	}
	defer full.Close()
	if err := sample().Write(full, 0); err == nil {
		t.Error("written to a full disk")
	}
}

func TestNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if Width(f) != 0 || IsTerminal(f) || Width(&bytes.Buffer{}) != 0 || IsTerminal(&bytes.Buffer{}) {
		t.Error("a file is taken for a terminal")
	}
}

package address

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestPrefix(t *testing.T) {
	for word, want := range map[string]string{
		"192.0.2.1": "192.0.2.1/32", "10/8": "10.0.0.0/8", "10.1/16": "10.1.0.0/16", "0/0": "0.0.0.0/0", "2001:db8::/32": "2001:db8::/32",
		"::1": "::1/128", "::ffff:192.0.2.1": "192.0.2.1/32",
	} {
		p, err := Prefix(word, "packets")
		if err != nil || p != netip.MustParsePrefix(want) {
			t.Errorf("%s is %v, %v, want %s", word, p, err, want)
		}
	}
	for word, want := range map[string]string{
		"10": "neither", "10.1": "neither", "": "neither", "a/8": "neither", "10.1.2.3.4/8": "neither", "10/33": "neither", "::ffff:10.0.0.0/104": "neither",
		"10.0.0.0/255.0.0.0": "write the length", "10.1/8": "bits are set after the prefix: did you mean 10.0.0.0/8, or the address 10.1.0.0?",
		"fe80::1%eth0": "packets have no zones: write fe80::1 and iface eth0",
	} {
		_, err := Prefix(word, "packets")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", word, err, want)
		}
		if (want == "neither") != errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", word, err)
		}
	}
}

func TestMistake(t *testing.T) {
	for word, want := range map[string]string{"[::1]": "without brackets: ::1", "80": "did you mean port 80?"} {
		if err := Mistake(word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", word, err, want)
		}
	}
	if err := Mistake("www"); err != nil {
		t.Error(err)
	}
}

package suggest

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"scan_interval", "sampling", "src", "sport", "idle_timeout", "ftps", "https"}
	for _, tt := range []struct{ word, want string }{
		{"scan_intervall", "scan_interval"},
		{"scna_interval", "scan_interval"},
		{"smapling", "sampling"},
		{"sprot", "sport"},
		{"scr", "src"},
		{"idletimeout", "idle_timeout"},
		{"x", ""},
		{"abc", ""},
		{"dst_address", ""},
		{"", ""},
		{"sprt", "sport"},
		{"htps", "https"}, // and not ftps
	} {
		if got := Nearest(tt.word, known); got != tt.want {
			t.Errorf("Nearest(%q) = %q, want %q", tt.word, got, tt.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "abc", 0},
		{"abc", "acb", 1},
		{"kitten", "sitting", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

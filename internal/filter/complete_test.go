package filter

import (
	"slices"
	"testing"
)

func TestNext(t *testing.T) {
	for _, tt := range []struct {
		text    string
		want    []string
		without []string
		field   string
	}{
		{"", []string{"sport", "host", "tcp", "not", "rtt"}, []string{"and", "src port"}, ""},
		{"tcp", []string{"and", "or", "port", "dport"}, []string{"not", "udp"}, ""},
		{"tcp and", []string{"sport", "tcp", "not"}, []string{"and"}, ""},
		{"tcp and (not", []string{"sport"}, []string{"and"}, ""},
		{"port 80", []string{"and", "or"}, []string{"port"}, ""},
		{"src", []string{"port", "net", "host", "or"}, []string{"udp"}, "src"},
		{"udp dst", []string{"port", "portrange"}, nil, "dst"},
		{"src or dst", []string{"port"}, nil, "addr"},
		{"tcp dst port", []string{"https", "ssh"}, []string{"and"}, ""},
		{"proto", []string{"tcp", "icmpv6"}, []string{"and"}, ""},
		{"not iface", nil, []string{"and"}, "iface"},
		{"netns =", nil, nil, "netns"},
		{"tcp_flags", []string{"syn"}, nil, ""},
		{"port in [80,", []string{"https"}, nil, ""},
		{"dprot", nil, []string{"and", "tcp"}, ""},
		{"port 80 80", nil, []string{"and"}, ""},
	} {
		words, field := Next(tt.text)
		var got []string
		for _, w := range words {
			got = append(got, w.Text)
		}
		for _, want := range tt.want {
			if !slices.Contains(got, want) {
				t.Errorf("after %q: %v lacks %s", tt.text, got, want)
			}
		}
		for _, bad := range tt.without {
			if slices.Contains(got, bad) {
				t.Errorf("after %q: %s makes no sense", tt.text, bad)
			}
		}
		if field != tt.field {
			t.Errorf("after %q: values of %q, want %q", tt.text, field, tt.field)
		}
	}
}

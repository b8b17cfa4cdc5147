package stage

import (
	"encoding/hex"
	"testing"

	"github.com/waymark-net/waymark/test/packet"
)

// TestLeaving: what is said of a frame that would leave, with a tag and without.
func TestLeaving(t *testing.T) {
	for name, want := range map[string]struct {
		frame []byte
		vlan  uint16
		to    string
	}{
		"plain":  {packet.Eth().IPv4("192.0.2.1", "198.51.100.2").UDP(1, 2).Bytes(), 0, "198.51.100.2"},
		"tagged": {packet.Eth().VLAN(7).IPv6("2001:db8::1", "2001:db8::2").UDP(1, 2).Bytes(), 7, "2001:db8::2"},
		"cut":    {packet.Eth().VLAN(7).IPv4("192.0.2.1", "198.51.100.2").UDP(1, 2).Bytes()[:16], 0, "invalid IP"},
	} {
		l := leaving(want.frame)
		if l.VLAN != want.vlan || l.To.String() != want.to || l.Frame != hex.EncodeToString(want.frame) || want.to != "invalid IP" && l.TTL != 64 {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

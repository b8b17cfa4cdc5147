package kernel

import (
	"os"
	"testing"
)

// The lowest port of clients follows the setting, up to that of other hosts.
func TestClientPorts(t *testing.T) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			t.Error(err)
		}
	}()
	for text, want := range map[string]uint32{"10000 60999": 10000, "40000 60999": 32768} {
		if err := os.WriteFile(file, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
		if got := ClientPorts(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

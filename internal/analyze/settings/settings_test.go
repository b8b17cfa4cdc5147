package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/config"
)

// Wrong addresses and devices are reported, with their lines.
func TestDevicesAreChecked(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"analyze:\n  receive: [{listen: '[::]:2055'}]\n", "nobody may send there"},
		{"analyze:\n  devices: [{address: 192.0.2.1, name: core1}]\n", "there is no address that they could send to"},
		{"analyze:\n  receive: [{listen: '[::]:2055', any: true}]\n", ""},
		{"analyze:\n  receive: [{any: true}]\n", "analyze.receive[0].listen"},
		{"analyze:\n  receive: [{listen: '[::]:2055', any: true, protocols: [netflow]}]\n", "netflow5"},
		{"analyze:\n  receive: [{listen: '[::]:2055'}]\n  devices:\n    - {address: 192.0.2.1, name: core1}\n", ""},
		{"analyze:\n  receive: [{listen: '[::]:2055'}]\n  devices:\n    - {address: 192.0.2.1, name: a/b}\n", "no name of a host"},
		{"analyze:\n  receive: [{listen: '[::]:2055'}]\n  devices:\n    - {address: 192.0.2.1, name: a}\n    - {address: 192.0.2.2, name: a}\n", ":5:"},
		{"analyze:\n  receive: [{listen: '[::]:2055'}]\n  devices:\n    - {address: 192.0.2.1, name: a}\n    - {address: 192.0.2.1, name: b}\n", "another device has it"},
		{"analyze:\n  receive: [{listen: '[::]:2055'}]\n  devices:\n    - {address: router, name: a}\n", "192.0.2.1"},
	} {
		file := filepath.Join(t.TempDir(), "analyze.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, origins, err := config.Load(config.Sources{File: file})
		if err == nil {
			err = Adapt(&cfg, origins)
		}
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.text, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q in it", c.text, err, c.says)
		}
	}
}

package packet

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

func TestCasesBuild(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.Name] {
			t.Errorf("two cases are named %q", c.Name)
		}
		seen[c.Name] = true
		if len(c.Flows) == 0 && len(c.Uncounted) == 0 {
			t.Errorf("%s: expects nothing", c.Name)
		}
		for i, cut := range Truncations(c) {
			if len(cut.Flows) == 0 && len(cut.Uncounted) == 0 {
				t.Errorf("%s: expects nothing", cut.Name)
			}
			if len(cut.Frames[0].Data) != i {
				t.Errorf("%s: %d bytes at place %d", cut.Name, len(cut.Frames[0].Data), i)
			}
		}
	}
}

// Random frames reach every depth of a parser: each kind of header is drawn.
func TestRandomIsVaried(t *testing.T) {
	seen := map[uint16]int{}
	rapid.Check(t, func(t *rapid.T) {
		if data := Random().Draw(t, "frame"); len(data) >= 14 {
			seen[binary.BigEndian.Uint16(data[12:])]++
		}
	})
	for _, etherType := range []uint16{TypeIPv4, TypeIPv6, TypeVLAN, TypeQinQ} {
		if seen[etherType] == 0 {
			t.Errorf("no frame with EtherType %#04x was drawn", etherType)
		}
	}
}

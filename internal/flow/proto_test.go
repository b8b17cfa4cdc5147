package flow

import "testing"

func TestProtoNames(t *testing.T) {
	for n := range 256 {
		if got, err := ParseProto(ProtoName(uint8(n))); err != nil || got != uint8(n) {
			t.Errorf("ParseProto(ProtoName(%d) = %q) = %d, %v", n, ProtoName(uint8(n)), got, err)
		}
	}
	for _, bad := range []string{"", "tpc", "256", "-1", "TCP "} {
		if got, err := ParseProto(bad); err == nil {
			t.Errorf("ParseProto(%q) = %d, want an error", bad, got)
		}
	}
}

func TestTCPFlagNames(t *testing.T) {
	for flags, want := range map[uint16]string{
		0x012: "syn+ack", 0x111: "fin+ack+ae", 0x802: "syn+0x800", 0: "",
	} {
		if got := TCPFlagNames(flags); got != want {
			t.Errorf("TCPFlagNames(%#x) = %q, want %q", flags, got, want)
		}
	}
	for flags := uint16(1); flags != 0; flags++ {
		if got, err := ParseTCPFlags(TCPFlagNames(flags)); err != nil || got != flags {
			t.Fatalf("ParseTCPFlags(TCPFlagNames(%#x)) = %#x, %v", flags, got, err)
		}
	}
	for _, bad := range []string{"", "syn+", "sin", "0x10000"} {
		if got, err := ParseTCPFlags(bad); err == nil {
			t.Errorf("ParseTCPFlags(%q) = %#x, want an error", bad, got)
		}
	}
}

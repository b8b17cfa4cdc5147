package kernel

import (
	"encoding/binary"
	"strings"
	"testing"
)

func TestRealtime(t *testing.T) {
	for version, want := range map[string]State{
		"#1 SMP PREEMPT_DYNAMIC Debian 6.1.99-1 (2024-07-15)": StateOK,
		"#1 SMP PREEMPT_RT Debian 6.1.99-1 (2024-07-15)":      StateDegraded,
	} {
		if got := realtimeOf(version); got.State != want {
			t.Errorf("%s: %s, want %s", version, got.State, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	ok := Check{Name: "cap_net_raw", State: StateOK}
	slow := Check{Name: "bpf-jit", State: StateDegraded}
	unknown := Check{Name: "tcx", State: StateUnknown}
	missing := Check{Name: "ringbuf", State: StateMissing, Remedy: "update the kernel"}
	for _, tt := range []struct {
		checks []Check
		state  State
		text   string
	}{
		{[]Check{ok}, StateOK, "everything works here. Start the agent with: waymark run"},
		{[]Check{ok, slow}, StateDegraded, "the eBPF probe works here, with less than everything: bpf-jit. Start it with: waymark run"},
		{[]Check{ok, slow, unknown}, StateUnknown, "unknown: needs root. Run: sudo waymark doctor"},
		{[]Check{missing, unknown}, StateMissing, "the eBPF probe cannot run here: ringbuf. Update the kernel"},
		{[]Check{missing, ok}, StateMissing, "the eBPF probe cannot run here: ringbuf. Update the kernel. The AF_PACKET probe can run: waymark run --probe afpacket"},
	} {
		if got := Judge(tt.checks, "waymark run"); got.State != tt.state || got.Text != tt.text {
			t.Errorf("%v: %+v, want %s: %s", tt.checks, got, tt.state, tt.text)
		}
	}
}

// What a user lacks is unknown, not missing.
func TestPrivilegesOfAUser(t *testing.T) {
	got := asUser([]Check{
		{Name: "cap_bpf", State: StateMissing, Found: "this process does not have it", Remedy: "run as root"},
		{Name: "cap_net_raw", State: StateOK},
	})
	if got[0].State != StateUnknown || got[0].Found != "needs root" || got[0].Remedy != "" || got[1].State != StateOK {
		t.Errorf("%+v", got)
	}
}

// The programs are compiled for little-endian processors; on others the AF_PACKET
// probe counts, and doctor says so.
func TestByteOrder(t *testing.T) {
	if c := byteOrder(binary.LittleEndian); c.State != StateOK {
		t.Errorf("%+v", c)
	}
	c := byteOrder(binary.BigEndian)
	if v := Judge([]Check{c, {Name: "cap_net_raw", State: StateOK}}, "waymark run"); v.State != StateMissing || !strings.HasSuffix(v.Text, "waymark run --probe afpacket") {
		t.Errorf("%+v: %+v", c, v)
	}
}

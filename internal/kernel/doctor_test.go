package kernel

import "testing"

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

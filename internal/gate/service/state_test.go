package service

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/gate"
)

// TestStateIsChecked: a state is read as it was written, and none that is damaged is.
func TestStateIsChecked(t *testing.T) {
	now := time.Now().UTC()
	text, err := json.Marshal(&state{
		Version: stateVersion, Saved: now, Rules: "set s { 192.0.2.1 }\ndrop src @s\n", Bans: []Ban{{Prefix: netip.MustParsePrefix("192.0.2.7/32"), Since: now}},
		Past:     []pastOne{{netip.MustParsePrefix("192.0.2.7/32"), 3, now}},
		Counters: &gate.Amounts{Rules: map[uint32]gate.Counts{7: {Packets: 1}}}, Inherited: &gate.Amounts{},
	})
	if err != nil {
		t.Fatal(err)
	}
	good := string(text)
	var st state
	if err := st.parse(text, now); err != nil || len(st.rules.Rules) != 1 || st.Counters.Rules[7].Packets != 1 || st.Past[0].Level != 3 || len(st.Bans) != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
	change := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatalf("%q is not in %s", from, good)
		}
		return strings.Replace(good, from, to, 1)
	}
	for _, damage := range []struct{ text, why string }{
		{"", "damaged"},
		{good[:len(good)/2], "damaged"},
		{good + "}", "damaged"},
		{"{}", "version 0"},
		{change(`"version":1`, `"version":7`), "version 7, and this agent reads version 1"},
		{change("drop src", "drip src"), "did you mean drop?"},
		{change("192.0.2.7/32", "192.0.2.7/24"), "no prefix to ban"},
		{change("192.0.2.7/32", "nowhere"), "damaged"},
		{change(`"counters"`, `"quarters"`), "no counters"},
		{change(`{ 192.0.2.1 }`, `from \"/etc/passwd\"`), "the agent reads no files"},
	} {
		if err := new(state).parse([]byte(damage.text), now); err == nil || !strings.Contains(err.Error(), damage.why) {
			t.Errorf("%s: %v, want %q", damage.text, err, damage.why)
		}
	}
}

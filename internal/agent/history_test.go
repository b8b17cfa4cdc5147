package agent

import (
	"testing"

	"github.com/waymark-net/waymark/internal/config"
)

// TestKeepsHistory: records are kept on disk by default, but not with a small profile, unless the configuration says otherwise;
// and where systemd or the configuration says.
func TestKeepsHistory(t *testing.T) {
	for _, tt := range []struct {
		profile, use string
		want         bool
	}{
		{"", "", true}, {"small", "", false}, {"", "never", false}, {"small", "never", false}, {"small", "always", true}, {"", "always", true},
	} {
		cfg := config.Default()
		if tt.profile != "" {
			cfg.Profile = tt.profile
		}
		if tt.use != "" {
			cfg.History.Use = tt.use
		}
		if got := keepsHistory(&cfg); got != tt.want {
			t.Errorf("profile %q, use %q: %t", tt.profile, tt.use, got)
		}
	}
	for state, want := range map[string]string{"": "/var/lib/waymark/history", "/a": "/a/history", "/b:/c": "/b/history"} {
		t.Setenv("STATE_DIRECTORY", state)
		if got := historyPath(&config.History{}); got != want {
			t.Errorf("STATE_DIRECTORY=%s: %s", state, got)
		}
		if got := historyPath(&config.History{Path: "/d"}); got != "/d" {
			t.Errorf("a path is given, and STATE_DIRECTORY=%s: %s", state, got)
		}
	}
}

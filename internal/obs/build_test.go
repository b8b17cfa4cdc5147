package obs

import (
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, tt := range []struct {
		info *debug.BuildInfo
		want Build
	}{
		{
			&debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: "v1.2.3"}},
			Build{Version: "v1.2.3", Commit: "unknown", Go: "go1.26.0"},
		},
		{
			&debug.BuildInfo{
				GoVersion: "go1.26.0", Main: debug.Module{Version: "(devel)"},
				Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "true")},
			},
			Build{Commit: "abc-dirty", Go: "go1.26.0"},
		},
		{
			&debug.BuildInfo{Settings: []debug.BuildSetting{setting("vcs.modified", "false"), setting("vcs.revision", "abc")}},
			Build{Commit: "abc"},
		},
	} {
		b := Build{Commit: "unknown"}
		b.fill(tt.info)
		if b != tt.want {
			t.Errorf("%+v, want %+v", b, tt.want)
		}
	}
	if b := ReadBuild(); b.Version == "" || b.Go == "" {
		t.Errorf("ReadBuild = %+v", b)
	}
}

package obs

import "runtime/debug"

// version is set when a release is linked:
// -ldflags "-X github.com/waymark-net/waymark/internal/obs.version=1.2.3".
var version string

// Build says which source this binary was made from.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // with "-dirty" when the tree had changes
	Go      string `json:"go"`
}

// ReadBuild reads what the Go linker recorded.
func ReadBuild() Build {
	b := Build{Version: version, Commit: "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.fill(info)
	}
	if b.Version == "" {
		b.Version = "devel"
	}
	return b
}

func (b *Build) fill(info *debug.BuildInfo) {
	b.Go = info.GoVersion
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty {
		b.Commit += "-dirty"
	}
	if b.Version == "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
}

package version

import (
	"runtime/debug"
	"testing"
)

func TestFromBuild(t *testing.T) {
	vcs := func(revision, modified string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}}
	}
	tests := []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{"installed as a module", debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{"built in a clean checkout", debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: vcs("0123456789abcdef", "false")}, "0123456789ab"},
		{"built in a changed checkout", debug.BuildInfo{Settings: vcs("0123456789abcdef", "true")}, "0123456789ab-dirty"},
		{"short revision", debug.BuildInfo{Settings: vcs("0123", "false")}, "0123"},
		{"nothing recorded", debug.BuildInfo{}, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := fromBuild(&tt.info); got != tt.want {
				t.Errorf("fromBuild() = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStampWins(t *testing.T) {
	defer func(old string) { stamp = old }(stamp)
	stamp = "v9.9.9-1-gabc"
	if got := String(); got != stamp {
		t.Errorf("String() = %q, want the linker's stamp %q", got, stamp)
	}
	stamp = ""
	if String() == "" {
		t.Error("String() is empty without a stamp")
	}
}

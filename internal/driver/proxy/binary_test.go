package proxy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
)

// TestLook: what cannot be started is said before anything is, unless an Envoy runs that can
// be adopted.
func TestLook(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("README.md", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := runDir(t)
	for _, test := range []struct {
		binary string
		says   []string
	}{
		{"/nope", []string{"stat /nope: no such file or directory: install it"}},
		{"./README.md", []string{"./README.md is not an executable file: install it"}},
		{dir, []string{dir + " is not an executable file"}},
		{"README.md", []string{"looked up on PATH", "for ./README.md, give its path"}},
		{"no-envoy-of-this-name", []string{"not found in $PATH: install it"}},
	} {
		err := Look(test.binary, dir)
		if err == nil {
			t.Errorf("%s: no error", test.binary)
			continue
		}
		contains(t, err.Error(), append(test.says, "envoy not found: ", "--envoy")...)
	}
	if _, err := os.Stat(filepath.Join(dir, "envoy.lock")); err == nil {
		t.Error("it takes the lock, which a living agent may need at that moment")
	}
	if err := Look("sh", dir); err != nil {
		t.Error(err)
	}
	if Alive(dir) {
		t.Error("an Envoy is alive before any was started")
	}
	r := begin(t, script(t, dir, "exec sleep 1000"))
	r.seen("it is started", func(st model.ProxyStatus) bool { return st.Starts == 1 })
	if err := Look("/nope", dir); err != nil {
		t.Errorf("one that is alive is adopted: %v", err)
	}
	if !Alive(dir) {
		t.Error("an Envoy that was started is not alive")
	}
}

// TestQuotesOneProcess: what an earlier Envoy wrote is no reason why this one ended.
func TestQuotesOneProcess(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := script(t, dir, "exit 7")
	if err := os.WriteFile(filepath.Join(dir, "envoy.log"), []byte("long ago\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	st := begin(t, c).seen("it ends", func(st model.ProxyStatus) bool { return st.State == Backoff })
	contains(t, st.Message, "exit status 7")
	if strings.Contains(st.Message, "long ago") {
		t.Errorf("it quotes another process: %s", st.Message)
	}
}

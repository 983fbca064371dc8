package xds_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestLinesOfTheLogAreCut holds that a client which says much has no more of it written than is useful.
func TestLinesOfTheLogAreCut(t *testing.T) {
	w := newWorld(t)
	file := filepath.Join(t.TempDir(), "access.log")
	l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
	w.listen(l, xds.Options{AccessLog: file}, host(l.ID, "a.test", says("hello", prefix("/"))))
	long := strings.Repeat("x", 10_000)
	w.get(l.Port, "a.test", "/"+long, "User-Agent: "+long, "X-Request-Id: "+long)
	var line []byte
	must(t, w.envoy.Until(w.ctx, "a line", func() bool {
		line, _ = os.ReadFile(file)
		return len(line) > 0 && line[len(line)-1] == '\n'
	}))
	var said map[string]any
	if err := json.Unmarshal(line, &said); err != nil {
		t.Fatal(err)
	}
	if path, _ := said["path"].(string); len(path) != 1024 || len(line) > 4096 {
		t.Errorf("a line of %d bytes, the path has %d", len(line), len(path))
	}
}

package report

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWrite(t *testing.T) {
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	f := Begin("start", func() time.Time { clock = clock.Add(time.Second); return clock })
	dir := filepath.Join(t.TempDir(), "bench", "out")
	path, err := f.Write(t.Context(), dir, struct {
		Ready float64 `json:"ready_s"`
	}{2.5})
	if err != nil {
		t.Fatal(err)
	}
	if path != filepath.Join(dir, "start.json") {
		t.Errorf("path is %s", path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name    string    `json:"name"`
		When    time.Time `json:"when"`
		Took    float64   `json:"took_s"`
		Ready   float64   `json:"ready_s"`
		Machine Machine   `json:"machine"`
		Before  []float64 `json:"load_before"`
		After   []float64 `json:"load_after"`
		Commit  string    `json:"commit"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "start" || !got.When.Equal(time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)) || got.Took != 1 || got.Ready != 2.5 ||
		got.Machine.Cores == 0 || got.Machine.MemoryMB == 0 || got.Machine.Kernel == "" || len(got.Before) != 3 || len(got.After) != 3 || got.Commit == "" {
		t.Errorf("report is %s", raw)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the directory holds %v", entries)
	}
}

func TestResultsThatCannotBeWritten(t *testing.T) {
	for says, results := range map[string]any{
		`"commit"`:   map[string]any{"commit": "mine"},
		"not a JSON": []int{1},
		"json: uns":  map[string]any{"x": func() {}},
	} {
		dir := t.TempDir()
		if _, err := Begin("x", time.Now).Write(t.Context(), dir, results); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("error is %v, want one that says %s", err, says)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("a report that failed left %v", entries)
		}
	}
}

func TestTable(t *testing.T) {
	table := Table{Columns: []string{"name", "ms", "address", "off by"}}
	table.Add("größe", 1.5, "10.0.0.1", "-0.5 sigma")
	table.Add("b", 100, "10.0.0.10", "+12.5 sigma")
	var b strings.Builder
	if err := table.Write(&b, "  "); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"  name    ms  address         off by\n" +
		"  größe  1.5  10.0.0.1    -0.5 sigma\n" +
		"  b      100  10.0.0.10  +12.5 sigma\n"
	if b.String() != want {
		t.Errorf("table is\n%swant\n%s", b.String(), want)
	}
}

// Package report writes down what a benchmark or a demo measured, together with
// the machine and the load that it was measured under, and prints tables.
//
// It refuses to judge: goals belong to those who measure. Invariant: a report is
// written whole or not at all, and its results' field names never hide the frame's.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// DefaultDir is where reports go, below the current directory.
const DefaultDir = "bench/out"

// Machine is what measured figures depend on.
type Machine struct {
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	MemoryMB int    `json:"memory_mb"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
}

// Frame is a measurement that has begun.
type Frame struct {
	Name string
	// When it began.
	When time.Time
	now  func() time.Time
	load []float64
}

// Begin notes the time and the load of the machine. The name becomes the file's.
func Begin(name string, now func() time.Time) *Frame {
	return &Frame{Name: name, When: now(), now: now, load: loadAverages()}
}

// Write writes <dir>/<name>.json: the fields of results next to name, when,
// took_s, machine, load_before, load_after (the load averages of 1, 5 and 15
// minutes) and commit. Results marshals to a JSON object. It returns the file's path.
func (f *Frame) Write(ctx context.Context, dir string, results any) (string, error) {
	raw, err := f.marshal(ctx, results)
	if err != nil {
		return "", fmt.Errorf("write report %s: %w", f.Name, err)
	}
	path := filepath.Join(dir, f.Name+".json")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write report %s: %w", f.Name, err)
	}
	if err := os.WriteFile(path+".new", raw, 0o644); err != nil {
		return "", fmt.Errorf("write report %s: %w", f.Name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return "", fmt.Errorf("write report %s: %w", f.Name, err)
	}
	return path, nil
}

func (f *Frame) marshal(ctx context.Context, results any) ([]byte, error) {
	raw, err := json.Marshal(results)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("results are not a JSON object: %w", err)
	}
	for name, value := range map[string]any{
		"name": f.Name, "when": f.When.UTC().Format(time.RFC3339), "took_s": f.now().Sub(f.When).Seconds(),
		"machine": ThisMachine(), "load_before": f.load, "load_after": loadAverages(), "commit": commit(ctx),
	} {
		if _, taken := fields[name]; taken {
			return nil, fmt.Errorf("results have a field %q, which the report itself uses", name)
		}
		fields[name] = value
	}
	out, err := json.MarshalIndent(fields, "", "  ")
	return append(out, '\n'), err
}

// ThisMachine describes the machine that this process runs on.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Go: runtime.Version()}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryMB = int(info.Totalram * uint64(info.Unit) >> 20)
	}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		m.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	return m
}

func loadAverages() []float64 {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil
	}
	var loads []float64
	for _, field := range strings.Fields(string(raw))[:3] {
		if l, err := strconv.ParseFloat(field, 64); err == nil {
			loads = append(loads, l)
		}
	}
	return loads
}

// commit names the commit of the working tree around the current directory, with
// "+" when files differ from it, or "unknown".
func commit(ctx context.Context) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-c", "safe.directory=*"}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	id, err := git("rev-parse", "--short=12", "HEAD")
	if err != nil {
		return "unknown"
	}
	if changed, err := git("status", "--porcelain", "--untracked-files=no"); err != nil || changed != "" {
		id += "+"
	}
	return id
}

// number is what a figure looks like, with its unit and a comparison.
var number = regexp.MustCompile(`^[-+<=> ]*[0-9,]+(\.[0-9]+)?( \S+)?$`)

// Table is rows under headings. Cells that look like numbers are aligned right.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Add appends a row; its cells are formatted with %v.
func (t *Table) Add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.Rows = append(t.Rows, row)
}

// Write prints the table, each line after indent.
func (t *Table) Write(w io.Writer, indent string) error {
	widths := make([]int, len(t.Columns))
	right := make([]bool, len(t.Columns))
	for i := range t.Columns {
		right[i] = len(t.Rows) > 0
		widths[i] = utf8.RuneCountInString(t.Columns[i])
		for _, row := range t.Rows {
			if i < len(row) {
				widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
				right[i] = right[i] && (row[i] == "" || number.MatchString(row[i]))
			}
		}
	}
	var errs []error
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		var line strings.Builder
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if right[i] {
				line.WriteString(gap + cell + "  ")
			} else {
				line.WriteString(cell + gap + "  ")
			}
		}
		_, err := fmt.Fprintln(w, indent+strings.TrimRight(line.String(), " "))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

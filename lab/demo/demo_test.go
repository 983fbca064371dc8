package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/demo"
	"fairlead.dev/lab/router"
)

// run runs the demo with stand-ins that have these faults, and checks what holds
// however it ends: the verdict is told and nothing is left.
func run(ctx context.Context, t *testing.T, faults string, back, follow time.Duration, watch io.Writer) (demo.Result, string, demo.Options, error) {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	if err := router.BIRD.Find(); err != nil {
		t.Skip(err)
	}
	t.Setenv(faultsVariable, faults)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubectl", "envoy"} {
		if err := os.Link(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	var told bytes.Buffer
	o := demo.Options{
		Kubectl: filepath.Join(dir, "kubectl"), Envoy: filepath.Join(dir, "envoy"),
		Lab: lab.Options{Dir: filepath.Join(dir, "labs")}, Requests: 3000, BackWithin: back, FollowWithin: follow, Alone: true,
		Out: io.MultiWriter(&told, t.Output(), watch), OutDir: filepath.Join(dir, "out"), Picture: filepath.Join(dir, "docs", "demo.svg"),
	}
	t.Cleanup(func() {
		logs, _ := filepath.Glob(filepath.Join(o.OutDir, "demo-logs", "*.log"))
		for _, path := range logs {
			if raw, err := os.ReadFile(path); err == nil && t.Failed() {
				t.Logf("%s ends with\n%s", filepath.Base(path), raw[max(0, len(raw)-2000):])
			}
		}
	})
	result, err := demo.Run(ctx, o)
	if _, statErr := os.Stat(o.Lab.Dir); !errors.Is(statErr, fs.ErrNotExist) {
		t.Errorf("the lab's directory is left: %v", statErr)
	}
	lines := strings.Split(strings.TrimSpace(told.String()), "\n")
	verdict := "demo: FAIL"
	if err == nil {
		verdict = "demo: PASS"
	}
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, verdict) {
		t.Errorf("the last line is %q, and the error %v", last, err)
	}
	if (err == nil) != result.Passed || err != nil && !errors.Is(err, demo.ErrFailed) {
		t.Errorf("passed is %v, and the error %v", result.Passed, err)
	}
	var written struct {
		Passed bool `json:"passed"`
		Steps  []struct {
			Requests, Failed int
		} `json:"steps"`
	}
	raw, readErr := os.ReadFile(filepath.Join(o.OutDir, "demo.json"))
	if readErr != nil || json.Unmarshal(raw, &written) != nil || written.Passed != result.Passed || len(written.Steps) != len(result.Steps) {
		t.Errorf("demo.json (%v) is %s", readErr, raw)
	}
	return result, told.String(), o, err
}

func TestPassesWhenAllIsWell(t *testing.T) {
	result, told, o, err := run(t.Context(), t, "", time.Minute, time.Minute, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	routes := result.Steps[5]
	if len(routes.NextHops) != 4 || len(routes.NextHops[0].Edges) != 3 {
		t.Errorf("the router's next hops are %+v", routes.NextHops)
	}
	many := result.Steps[6]
	if many.Requests != 3000 || many.Failed != 0 || len(many.Shares) != 3 || len(many.Answers) != 3 {
		t.Errorf("the big step is %+v", many)
	}
	for i, s := range result.Steps[7:15] {
		if s.Requests < 1000 || s.Failed != int(s.Figures["failed_exchanged"]) && !s.Lost || s.Figures["failed_stayed"] != 0 {
			t.Errorf("%s: %d requests, %d failed: %v", s.Title, s.Requests, s.Failed, s.Figures)
		}
		if mayFail := i == 3 || i == 4 || i == 5 || i == 7; s.Lost != mayFail {
			t.Errorf("%s: requests may fail is %v", s.Title, s.Lost)
		}
	}
	envoy, edge := result.Steps[10], result.Steps[11]
	if f := envoy.Figures; envoy.Failed == 0 || f["withdrawn_ms"] <= 0 || f["routed_ms"] <= f["withdrawn_ms"] || f["failed_struck"] == 0 {
		t.Errorf("the step in which Envoy dies is %+v", envoy)
	}
	if f := edge.Figures; f["withdrawn_ms"] <= 0 || f["failed_struck"] == 0 || len(edge.NextHops) != 4 || len(edge.NextHops[0].Edges) != 2 {
		t.Errorf("the step in which an edge dies is %+v", edge)
	}
	if kernel := result.Steps[15:18]; len(kernel[0].Wrong) > 0 || kernel[1].Requests > 0 || !strings.Contains(told, "this kernel lacks support: a stand-in balances nothing") {
		t.Errorf("the steps of the kernel are %+v", kernel)
	}
	if !strings.Contains(told, "nothing left behind") {
		t.Error("it does not say that nothing is left")
	}
	if _, err := os.Stat(filepath.Join(o.OutDir, "demo-logs")); err == nil {
		t.Error("a demo that passed kept logs")
	}
	picture, err := os.ReadFile(o.Picture)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
	}
	for _, want := range []string{">PASS<", ">edge-1<", ">edge-3<", ">router<", ">os1-b<", ">Plane killed (-9)<", "prefers-color-scheme"} {
		if !bytes.Contains(picture, []byte(want)) {
			t.Errorf("the picture has no %s", want)
		}
	}
	if keep := os.Getenv("FAIRLEAD_DEMO_TEST_PICTURE"); keep != "" {
		_ = os.WriteFile(keep, picture, 0o644)
	}
}

func TestFindsEveryFault(t *testing.T) {
	result, _, o, err := run(t.Context(), t, strings.Join([]string{faultSkew, faultForgetful, faultLame, faultAbrupt}, ","), time.Second, time.Millisecond, io.Discard)
	if err == nil {
		t.Fatal("it passed")
	}
	for step, says := range map[int]string{
		6:  "team01-app.example.com: k8s1 got",
		8:  "requests failed, want none",
		10: "edge-1 was back after",
		11: "the router followed after",
		13: "requests failed, want none",
	} {
		if len(result.Steps) <= step {
			t.Fatalf("it ended after %d steps: %v", len(result.Steps), err)
		}
		s := result.Steps[step]
		if !strings.Contains(strings.Join(s.Wrong, "\n"), says) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: wrong is %q, want that %s", s.Title, s.Wrong, says)
		}
	}
	if s := result.Steps[7]; len(s.Wrong) > 0 {
		t.Errorf("%s: wrong is %q, want nothing", s.Title, s.Wrong)
	}
	if _, err := os.Stat(o.Picture); err == nil {
		t.Error("a demo that failed was drawn")
	}
	if _, err := os.Stat(filepath.Join(o.OutDir, "demo-logs", "plane-plane.log")); err != nil {
		t.Errorf("the logs were not kept: %v", err)
	}
}

func TestSaysWhyThePlaneDoesNotStart(t *testing.T) {
	_, told, o, err := run(t.Context(), t, faultDead, time.Minute, time.Minute, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("error is %v, want what the plane said last", err)
	}
	if !strings.Contains(told, o.OutDir) {
		t.Error("it does not say where the logs are")
	}
}

func TestInterruptedLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, _, _, err := run(ctx, t, "", time.Minute, time.Minute, writer(func(p []byte) {
		if bytes.Contains(p, []byte("Kill the plane")) {
			cancel()
		}
	}))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that it was interrupted", err)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func TestSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	kubectl := filepath.Join(dir, "kubectl") // it is asked who it is, and by this name the binary stands in for it
	if err := os.Symlink(os.Args[0], kubectl); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAIRLEAD_ENVOY", filepath.Join(dir, "envoy"))
	t.Setenv("FAIRLEAD_KUBECTL", kubectl)
	var told bytes.Buffer
	_, err := demo.Run(t.Context(), demo.Options{Out: &told})
	if !errors.Is(err, demo.ErrFailed) || !strings.Contains(told.String(), "FAIRLEAD_ENVOY") || !strings.HasSuffix(told.String(), "demo: FAIL\n") {
		t.Errorf("error is %v, and it told %q", err, told.String())
	}
}

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"fairlead.dev/lab"
	"fairlead.dev/lab/rig"
)

// TestBackupAndRestore saves a plane that runs, changes things, and brings the old
// state back. Machines that joined before go on, and so does kubectl with its old
// kubeconfig.
func TestBackupAndRestore(t *testing.T) {
	s := newLab(t, "backup", client, edge1, os1, plane)
	if err := s.start(t.Context(), rig.PlaneOptions{}, "--drain-time", "1s"); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("old"), service("old", "app", s.backends["os1-a"]), service("old", "other", s.backends["os1-b"]),
		httpRoute("old", "app", "old.example.com", to("app")))
	s.awaitAnswer(t, request{host: "old.example.com"}, 200, "os1-a")

	file := filepath.Join(t.TempDir(), "backup.tar")
	m := s.plane.Machine
	if status, out, errs := s.run(t, m, "backup", "--data-dir", s.plane.Dir, "--file", file); status != 0 || out != "saved "+s.plane.Dir+" in "+file+"\n" {
		t.Fatalf("backup ended with %d: %s%s", status, out, errs)
	}
	s.apply(t, httpRoute("old", "app", "old.example.com", to("other")), httpRoute("old", "new", "new.example.com", to("app")))
	s.awaitAnswer(t, request{host: "old.example.com"}, 200, "os1-b")
	s.awaitAnswer(t, request{host: "new.example.com"}, 200, "os1-a")
	// A start raises the epoch above the one in the backup, where the restored plane's
	// first one is the same: the machine must have seen more of it than that plane says.
	if err := s.plane.Process.Stop(t.Context(), stopTime); err != nil {
		t.Fatal(err)
	}
	s.startPlane(t)
	for range 3 {
		for _, b := range []string{"app", "other"} {
			s.apply(t, httpRoute("old", "app", "old.example.com", to(b)))
			s.awaitConditions(t, "HTTPRoute old/app", programmed)
		}
	}
	s.awaitAnswer(t, request{host: "old.example.com"}, 200, "os1-b")
	seen, err := s.plane.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	f := s.startTraffic(t, "old.example.com")
	if status, _, errs := s.run(t, m, "restore", "--data-dir", s.plane.Dir, "--file", file); status != 1 || !matches("fairlead: restore "+s.plane.Dir+" from "+file+": …\n", errs) {
		t.Errorf("restore beside a plane that runs ended with %d: %s", status, errs)
	}
	if err := s.plane.Process.Stop(t.Context(), stopTime); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.tar")
	if err := cutFile(file, damaged); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := s.run(t, m, "restore", "--data-dir", s.plane.Dir, "--file", damaged); status != 1 || !matches("fairlead: restore …the backup is cut short…", errs) {
		t.Errorf("restore of half a backup ended with %d: %s", status, errs)
	}
	if status, _, errs := s.run(t, m, "restore", "--data-dir", s.plane.Dir, "--file", file); status != 1 || !strings.HasPrefix(errs, "The backup is of ") || !strings.Contains(errs, "use --yes to continue") {
		t.Errorf("restore without anybody to ask ended with %d: %s", status, errs)
	}
	if status, out, errs := s.run(t, m, "restore", "--data-dir", s.plane.Dir, "--file", file, "--yes"); status != 0 || out != "restored "+s.plane.Dir+" from "+file+"\n" ||
		!strings.Contains(errs, "It accepts the same machines and tokens") {
		t.Fatalf("restore ended with %d: %s%s", status, out, errs)
	}
	s.startPlane(t)
	s.awaitAnswer(t, request{host: "old.example.com"}, 200, "os1-a")
	s.awaitAnswer(t, request{host: "new.example.com"}, 404)
	s.awaitConditions(t, "HTTPRoute old/app", programmed)
	if out := s.kubectl(t, "-n", "old", "get", "httproutes", "-o", "name"); out != "httproute.gateway.networking.k8s.io/app\n" {
		t.Errorf("kubectl sees %q, want the route of the backup only", out)
	}
	// What is changed from now on reaches the machine, which saw later epochs before.
	s.apply(t, httpRoute("old", "app", "old.example.com", to("other")))
	s.awaitAnswer(t, request{host: "old.example.com"}, 200, "os1-b")
	now, err := s.plane.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now.Plane.Epoch <= seen.Plane.Epoch {
		t.Errorf("the epoch is %d, and the machine has seen %d", now.Plane.Epoch, seen.Plane.Epoch)
	}
	f.none(t)

	// What was there before the restore is kept.
	aside, err := filepath.Glob(s.plane.Dir + ".before-restore-*")
	if err != nil || len(aside) != 1 {
		t.Errorf("beside the data directory there are %v (%v), want the one from before the restore", aside, err)
	}
}

// TestTwoProcessesOnOneDataDirectory starts a second plane on the first one's data.
func TestTwoProcessesOnOneDataDirectory(t *testing.T) {
	s := shared(t)
	p, err := s.plane.Machine.Start(t.Context(), lab.ProcessSpec{Name: "second", Argv: []string{
		s.Binary, "plane", "--data-dir", s.plane.Dir, "--api-port", "6500", "--agent-port", "7500", "--console-address", "127.0.0.1:7501", "--read-address", ":0",
		"--advertise-address", s.plane.Machine.Addr4().String(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err == nil {
		t.Error("the second plane ended well")
	}
	log, err := lastLine(p.Log())
	if says := "fairlead: …" + s.plane.Dir + "…process …"; !matches(says, log) {
		t.Errorf("it said %q (%v), want %q", log, err, says)
	}
	if err := s.plane.Answers(t.Context()); err != nil {
		t.Errorf("the first plane: %v", err)
	}
}

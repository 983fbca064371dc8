package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func machine(t *testing.T) Machine { return Machine{Root: t.TempDir(), Binary: "/opt/fairlead"} }

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func changes(list []Change) (all []string) {
	for _, c := range list {
		all = append(all, filepath.Base(c.Path)+" "+c.What)
	}
	return all
}

func TestInstall(t *testing.T) {
	m := machine(t)
	for _, step := range []struct {
		name  string
		flags []string
		token []byte
		want  []string
	}{
		{"first", []string{"--plane=a:1"}, []byte("t"), []string{"agent.token written", "agent.env written", "fairlead-agent.service written"}},
		{"again", []string{"--plane=a:1"}, []byte("t"), []string{"agent.token unchanged", "agent.env unchanged", "fairlead-agent.service unchanged"}},
		{"without a token", []string{"--plane=a:1"}, nil, []string{"agent.env unchanged", "fairlead-agent.service unchanged"}},
		{"other flags", []string{"--plane=b:1", "--envoy=/my envoy"}, nil, []string{"agent.env written", "fairlead-agent.service unchanged"}},
	} {
		got, err := m.Install(Agent, step.flags, step.token)
		if err != nil || !slices.Equal(changes(got), step.want) {
			t.Errorf("%s: %v, %v; want %v", step.name, changes(got), err, step.want)
		}
		if flags, is := m.Flags(Agent); !is || !slices.Equal(flags, step.flags) {
			t.Errorf("%s: the flags are %q", step.name, flags)
		}
	}
	unit, err := os.ReadFile(filepath.Join(m.Root, "etc/systemd/system/fairlead-agent.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/opt/fairlead agent $FAIRLEAD_AGENT_FLAGS $FAIRLEAD_AGENT_STOP\n") {
		t.Errorf("%v: the unit is %s", err, unit)
	}
	for _, secret := range []string{"agent.token", "agent.env"} {
		if info, err := os.Stat(filepath.Join(m.Root, "etc/fairlead", secret)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", secret, info, err)
		}
	}
	got, err := m.Uninstall(Agent)
	if want := []string{"agent.env removed", "agent.token removed", "fairlead-agent.service removed"}; err != nil || !slices.Equal(changes(got), want) {
		t.Errorf("uninstall: %v, %v; want %v", changes(got), err, want)
	}
	if got, err := m.Uninstall(Agent); err != nil || len(got) > 0 {
		t.Errorf("uninstall again: %v, %v", got, err)
	}
}

// A package's unit is the one that runs: ours from before it would hide what its upgrades bring.
func TestPackagedUnitComesFirst(t *testing.T) {
	m := machine(t)
	if _, err := m.Install(Plane, nil, nil); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(m.Root, "usr/lib/systemd/system/fairlead-plane.service"), "[Unit]\n")
	got, err := m.Install(Plane, nil, nil)
	if want := []string{"plane.env unchanged", "fairlead-plane.service removed"}; err != nil || !slices.Equal(changes(got), want) {
		t.Errorf("%v, %v; want %v", changes(got), err, want)
	}
}

// What an admin wrote is neither replaced nor removed.
func TestForeignUnitStays(t *testing.T) {
	m := machine(t)
	unit := filepath.Join(m.Root, "etc/systemd/system/fairlead-agent.service")
	put(t, unit, "[Service]\nExecStart=mine\n")
	if _, err := m.Install(Agent, nil, nil); !errors.Is(err, ErrForeign) {
		t.Errorf("install: %v", err)
	}
	if _, err := m.Uninstall(Agent); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(unit); err != nil || string(text) != "[Service]\nExecStart=mine\n" {
		t.Errorf("%v: the unit is %q", err, text)
	}
}

// systemd would read these as something else.
func TestRefusedFlags(t *testing.T) {
	for _, flag := range []string{"--name='", `--name="`, `--name=\`, "--name=a\nb"} {
		if _, err := machine(t).Install(Agent, []string{flag}, nil); err == nil || !strings.Contains(err.Error(), "cannot stand") {
			t.Errorf("%q: %v", flag, err)
		}
	}
}

// TestRefusedPrograms holds that no unit is written with a path that systemd would read as another program, or as arguments.
func TestRefusedPrograms(t *testing.T) {
	for _, path := range []string{"/opt/fair lead", "/opt/fair\tlead", "/opt/%h/fairlead", "/opt/$HOME/fairlead", `/opt/"fairlead`, "/opt/fairlead\nUser=nobody"} {
		m := machine(t)
		m.Binary = path
		if _, err := m.Install(Agent, nil, nil); err == nil || !strings.Contains(err.Error(), "cannot stand") {
			t.Errorf("%q: %v", path, err)
		}
		if m.HasUnit(Agent) {
			t.Errorf("%q: there is a unit", path)
		}
	}
}

// An agent drains only while it is taken out of service, whatever goes wrong meanwhile.
func TestDrain(t *testing.T) {
	for _, fails := range []string{"", "restart", "stop"} {
		root := t.TempDir()
		dropIn := filepath.Join(root, "run/systemd/system/fairlead-agent.service.d/fairlead-drain.conf")
		var did []string
		s := &Service{part: Agent, root: root, run: func(_ context.Context, args ...string) error {
			text, _ := os.ReadFile(dropIn)
			if drains := strings.Contains(string(text), "FAIRLEAD_AGENT_STOP=--on-stop=drain"); drains {
				did = append(did, args[0]+" to drain")
			} else {
				did = append(did, args[0])
			}
			if args[0] == fails {
				return errors.New("no")
			}
			return nil
		}}
		err := s.Drain(t.Context(), func(context.Context) { did = append(did, "ready") })
		want := []string{"daemon-reload to drain", "restart to drain", "ready", "stop to drain", "daemon-reload"}
		if fails == "restart" {
			want = slices.Delete(want, 2, 4)
		}
		if (err != nil) != (fails != "") || !slices.Equal(did, want) {
			t.Errorf("%s fails: %v, %v; want %v", fails, did, err, want)
		}
		if left, _ := os.ReadDir(filepath.Join(root, "run/systemd/system")); len(left) > 0 {
			t.Errorf("%s fails: %v is left", fails, left)
		}
	}
}

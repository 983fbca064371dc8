package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fairlead.dev/deploy/systemd"
)

// A Service speaks with this machine's systemd about a part.
type Service struct {
	part Part
	root string
	// run asks systemctl.
	run func(ctx context.Context, args ...string) error
}

// ErrNoSystemd is for machines that another service manager runs, and for images.
var ErrNoSystemd = errors.New("systemd does not run this machine")

// NewService returns the part's service, or ErrNoSystemd.
func NewService(p Part) (*Service, error) {
	// As sd_booted(3) finds out.
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return nil, ErrNoSystemd
	}
	return &Service{part: p, root: "/", run: systemctl}, nil
}

func systemctl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "systemctl", append([]string{"--quiet"}, args...)...).CombinedOutput()
	if err == nil {
		return nil
	}
	return fmt.Errorf("systemctl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
}

// Reload has systemd read what was written.
func (s *Service) Reload(ctx context.Context) error { return s.run(ctx, "daemon-reload") }

// Active says whether the part runs.
func (s *Service) Active(ctx context.Context) bool {
	return s.run(ctx, "is-active", s.part.Unit()) == nil
}

// EnableNow has the part run from now on, and after each boot; anew, if its settings have
// changed. An agent hands over to the next one when it is started anew.
func (s *Service) EnableNow(ctx context.Context, changed bool) error {
	if err := s.run(ctx, "enable", s.part.Unit()); err != nil {
		return err
	}
	if changed {
		return s.run(ctx, "restart", s.part.Unit())
	}
	return s.run(ctx, "start", s.part.Unit())
}

// Stop ends the part; for good has it stay away after a boot, too.
func (s *Service) Stop(ctx context.Context, forGood bool) error {
	err := s.run(ctx, "stop", s.part.Unit())
	if forGood {
		err = errors.Join(err, s.run(ctx, "disable", s.part.Unit()))
	}
	return err
}

// Kill ends what the part has left behind, an Envoy that serves on.
func (s *Service) Kill(ctx context.Context) error { return s.run(ctx, "kill", s.part.Unit()) }

// Drain ends an agent after its connections have ended. Its unit is to leave Envoy alone
// when it stops, so the agent is first replaced by one that drains when it stops, which takes
// the living Envoy over. ready returns when it has.
func (s *Service) Drain(ctx context.Context, ready func(context.Context)) (err error) {
	dropIn := filepath.Join(s.root, "run/systemd/system", s.part.Unit()+".d", "fairlead-drain.conf")
	if err := os.MkdirAll(filepath.Dir(dropIn), 0o755); err != nil {
		return err
	}
	defer func() {
		gone := os.Remove(dropIn)
		_ = os.Remove(filepath.Dir(dropIn)) // unless something else is there
		if !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone, s.Reload(context.WithoutCancel(ctx)))
		}
	}()
	if err := os.WriteFile(dropIn, []byte("[Service]\nEnvironment="+systemd.Drain+"=--on-stop=drain\n"), 0o644); err != nil {
		return err
	}
	if err := s.Reload(ctx); err != nil {
		return err
	}
	if err := s.run(ctx, "restart", s.part.Unit()); err != nil {
		return err
	}
	ready(ctx)
	return s.run(ctx, "stop", s.part.Unit())
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fairlead.dev/internal/driver/proxy"
	"fairlead.dev/internal/install"
)

// uninstallFlags say what goes.
type uninstallFlags struct {
	installFlags
	purge, keepSettings, noDrain bool
}

func (f *uninstallFlags) add(c *cobra.Command) {
	f.installFlags.add(c)
	c.Flags().BoolVar(&f.purge, "purge", false, "also remove its data")
	c.Flags().BoolVar(&f.keepSettings, "keep-settings", false, "only stop the service until the next boot or start; keep unit and settings")
	c.MarkFlagsMutuallyExclusive("purge", "keep-settings")
}

// runUninstall ends the part and removes what is to go.
func runUninstall(c *cobra.Command, p install.Part, f *uninstallFlags, end func(context.Context, *install.Service, []string) error) error {
	machine := install.Machine{Root: f.root}
	service, err := f.service(p)
	if err != nil {
		return err
	}
	did := installed{Unit: p.Unit(), Files: []install.Change{}, Service: install.Unchanged}
	flags, _ := machine.Flags(p)
	if service != nil && machine.HasUnit(p) {
		if err := end(c.Context(), service, flags); err != nil {
			return err
		}
		if did.Service = "stopped"; !f.keepSettings {
			did.Service = "stopped and disabled"
		}
	}
	if !f.keepSettings {
		if did.Files, err = machine.Uninstall(p); err != nil {
			return err
		}
	}
	if service != nil {
		if err := service.Reload(c.Context()); err != nil {
			return err
		}
	}
	if f.purge {
		for _, path := range dataOf(p) {
			path = filepath.Join(f.root, path)
			if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
			did.Files = append(did.Files, install.Change{Path: path, What: install.Removed})
		}
		_ = os.Remove(filepath.Join(f.root, filepath.Dir(defaultAgentDir))) // unless the other part is there
		if other := otherDirs(flags); len(other) > 0 {
			did.Next = "Directories chosen with flags stay: " + strings.Join(other, ", ")
		}
	}
	return f.print(c.OutOrStdout(), did)
}

// dataOf are the directories of a part, where no flag says otherwise: others are not ours to
// remove.
func dataOf(p install.Part) []string {
	if p == install.Plane {
		return []string{defaultPlaneDir}
	}
	return []string{defaultAgentDir, defaultRunDir, defaultBPFDir}
}

func otherDirs(flags []string) (other []string) {
	for _, flag := range flags {
		for _, name := range []string{"--data-dir=", "--run-dir=", "--bpf-dir="} {
			if dir, ok := strings.CutPrefix(flag, name); ok {
				other = append(other, dir)
			}
		}
	}
	return other
}

// endAgent ends an agent and its Envoy.
func endAgent(ctx context.Context, s *install.Service, flags []string, drain, forGood bool) error {
	runDir := flagOf(flags, "run-dir", defaultRunDir)
	var drained error
	if drain && (s.Active(ctx) || proxy.Alive(runDir)) {
		drained = s.Drain(ctx, func(ctx context.Context) {
			awaitReady(ctx, flagOf(flags, "console-address", defaultAgentConsole))
		})
	}
	if err := errors.Join(drained, s.Stop(ctx, forGood)); err != nil {
		return err
	}
	if !proxy.Alive(runDir) {
		return nil
	}
	if drain {
		return fmt.Errorf("the Envoy of run directory %s did not end with its agent: --no-drain ends it", runDir)
	}
	return s.Kill(ctx)
}

func flagOf(flags []string, name, otherwise string) string {
	for _, flag := range flags {
		if value, ok := strings.CutPrefix(flag, "--"+name+"="); ok {
			otherwise = value
		}
	}
	return otherwise
}

// awaitReady waits until an agent has what the one before it had. One that cannot say so
// within readyPatience is stopped as it is.
func awaitReady(ctx context.Context, console string) {
	ctx, cancel := context.WithTimeout(ctx, readyPatience)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+console+"/readyz", nil)
		if err != nil {
			return
		}
		if answer, err := http.DefaultClient.Do(request); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(readyInterval):
		}
	}
}

// How long an agent may take to take over, and how often it is asked.
const (
	readyPatience = 30 * time.Second
	readyInterval = 100 * time.Millisecond
)

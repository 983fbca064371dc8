package ipvs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

// memory is the file that says which services are ours: IPVS does not know. It is believed
// until the machine boots again.
type memory struct {
	path string // empty: nothing outlasts the process
	boot string
	ours map[model.FrontendKey]bool
}

// remembered is the file's content.
type remembered struct {
	Boot     string   `json:"boot"`
	Services []string `json:"services"`
}

// recall reads the file of the directory.
func recall(dir, boot string) (*memory, error) {
	m := &memory{boot: boot, ours: map[model.FrontendKey]bool{}}
	if dir == "" {
		return m, nil
	}
	m.path = filepath.Join(dir, "ipvs.json")
	text, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	var r remembered
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the list of our IPVS services: %w (to start anew, remove the services with ipvsadm -D, and the file)", err)
	}
	if r.Boot != boot {
		return m, nil
	}
	for _, text := range r.Services {
		k, err := model.ParseFrontend(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.path, err)
		}
		m.ours[k] = true
	}
	return m, nil
}

// keep makes the list exactly these.
func (m *memory) keep(ours map[model.FrontendKey]bool) error {
	m.ours = ours
	if m.path == "" {
		return nil
	}
	r := remembered{Boot: m.boot}
	for k := range ours {
		r.Services = append(r.Services, k.String())
	}
	slices.Sort(r.Services)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	fresh := m.path + ".new"
	if err := errors.Join(os.MkdirAll(filepath.Dir(m.path), 0o755), os.WriteFile(fresh, append(text, '\n'), 0o600)); err != nil {
		return fmt.Errorf("store the list of our IPVS services: %w", err)
	}
	if err := os.Rename(fresh, m.path); err != nil {
		return fmt.Errorf("store the list of our IPVS services: %w", err)
	}
	return nil
}

// bootID is a name of this run of the kernel, the same in every container.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

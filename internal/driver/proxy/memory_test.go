package proxy

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAvailableMemory(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"nothing is known", nil, 0},
		{"a machine", map[string]string{"proc/meminfo": "MemTotal:  1000 kB\nMemFree: 5 kB\n"}, 1000 << 10},
		{"a group without a limit", map[string]string{
			"proc/meminfo": "MemTotal:  1000 kB\n", "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
		}, 1000 << 10},
		{"a limit above the group", map[string]string{
			"proc/meminfo": "MemTotal:  1000 kB\n", "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "4096\n",
		}, 4096},
		{"a container, whose group is the root", map[string]string{
			"proc/meminfo": "MemTotal:  1000 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n",
		}, 8192},
		{"more than there is", map[string]string{
			"proc/meminfo": "MemTotal:  1 kB\n", "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "8192\n",
		}, 1024},
		{"version 1", map[string]string{"proc/meminfo": "MemTotal:  1 kB\n", "proc/self/cgroup": "5:memory:/x\n"}, 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := availableMemory(root); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
	if AvailableMemory() == 0 {
		t.Error("nothing is known of this machine")
	}
}

package proxy

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// AvailableMemory is how much memory this process and what it starts may use, bytes: the
// machine's, or less if a control group above the process says so. 0 is not known.
func AvailableMemory() uint64 { return availableMemory("/") }

func availableMemory(root string) uint64 {
	least := memTotal(filepath.Join(root, "proc/meminfo"))
	own, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return least
	}
	// Version 2 has one line, "0::/path" (cgroups(7)).
	_, path, ok := strings.Cut(strings.TrimSpace(string(own)), "0::")
	if !ok {
		return least
	}
	for {
		if text, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", path, "memory.max")); err == nil {
			// "max" is no number, and no limit.
			if n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		if path == "/" || path == "." || path == "" {
			return least
		}
		path = filepath.Dir(path)
	}
}

// memTotal reads the first line of proc_meminfo(5): "MemTotal:  16384 kB".
func memTotal(path string) uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "MemTotal:" {
			n, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				return 0
			}
			return n * 1024
		}
	}
	return 0
}

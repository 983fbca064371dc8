package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// forgetStart gives back the pages of this binary that only its start needed. All
// of the API server initialises itself in every process of this binary, an agent
// too, and maps some 60 MB on the way; what is needed again is mapped again, from
// the page cache. Only read-only mappings of the binary are touched; they hold what
// the file holds, unless the binary was relocated when it was loaded, which is why
// a position-independent one is left alone. A failure is of no consequence.
func forgetStart() error {
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-buildmode", Value: "exe"}) {
		return errors.New("this binary may have been relocated")
	}
	binary, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("read the memory map: %w", err)
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		// proc_pid_maps(5): start-end permissions offset device inode path
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[5] != binary || fields[1][1] == 'w' {
			continue
		}
		var start, end uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &start, &end); err != nil {
			return fmt.Errorf("read the memory map: %w", err)
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("give back %s: %w", fields[0], errno)
		}
	}
	return nil
}

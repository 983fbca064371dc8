package demo

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// busyShare is how much of ten seconds somebody waited for a processor on a busy machine, percent.
	busyShare = 50
	// busyTimes is how many times longer things may take there.
	busyTimes = 5
	// pressureFile is where the kernel says so (Documentation/accounting/psi.rst).
	pressureFile = "/proc/pressure/cpu"
)

// within is how long something may take: as long as the options say, or else as it takes where there are
// processors to be had, and longer on a busy machine, which it says.
func (s *Step) within(said, usual time.Duration) time.Duration {
	if said > 0 {
		return said
	}
	raw, err := os.ReadFile(pressureFile)
	if err != nil {
		return usual
	}
	if share := waiting(string(raw)); share >= busyShare {
		s.fact("the machine is busy (programs waited for a processor %.0f %% of ten seconds): it may take %d times as long", share, busyTimes)
		return busyTimes * usual
	}
	return usual
}

// waiting is how much of the last ten seconds some program waited, percent.
func waiting(pressure string) float64 {
	for lines := bufio.NewScanner(strings.NewReader(pressure)); lines.Scan(); {
		var share float64
		if _, err := fmt.Sscanf(lines.Text(), "some avg10=%f", &share); err == nil {
			return share
		}
	}
	return 0
}

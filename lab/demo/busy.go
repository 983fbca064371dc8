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
// processors to be had, and longer where the machine was busy before the demo began, and is, which it says.
func (d *demo) within(s *Step, said, usual time.Duration) time.Duration {
	switch {
	case said > 0:
		return said
	case min(d.result.Waiting, pressure()) < busyShare: // before the demo, and now
		return usual
	}
	s.fact("the machine was and is busy: each step may take %d times as long", busyTimes)
	return busyTimes * usual
}

// pressure is how much of the last ten seconds some program waited for a processor, percent; 0 where the
// kernel does not say.
func pressure() float64 {
	raw, err := os.ReadFile(pressureFile)
	if err != nil {
		return 0
	}
	return waiting(string(raw))
}

// waiting is how much of the last ten seconds some program waited, percent.
func waiting(text string) float64 {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		var share float64
		if _, err := fmt.Sscanf(lines.Text(), "some avg10=%f", &share); err == nil {
			return share
		}
	}
	return 0
}

package proxy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// lookMost is what one look counts at most. A supervisor that did not run for a while
// itself, because the machine slept, say, knows nothing of that while.
const lookMost = 2 * (adminTimeout + lookEvery)

// pulse judges whether an Envoy hangs.
//
// Envoy answers its admin interface on its main thread, and its requests on others. A
// main thread that is busy with a large change, or starved, or stuck, says nothing of
// traffic, so silence alone is no reason to end a process. It hangs only if it was
// silent, and none of its threads ran at all, through every look for the given time:
// it is stopped or frozen, or all its threads wait for one another. Such a process
// has served nobody. One that merely idles wakes up for its timers.
type pulse struct {
	after  time.Duration
	at     time.Time // of the last look
	ran    uint64
	silent time.Duration
}

// hangs takes one look: whether Envoy answered, and how long its threads have run so
// far; known says whether that could be read.
func (p *pulse) hangs(now time.Time, answered bool, ran uint64, known bool) bool {
	passed := min(max(0, now.Sub(p.at)), lookMost)
	lives := p.at.IsZero() || answered || !known || ran != p.ran
	p.at, p.ran = now, ran
	if lives {
		p.silent = 0
		return false
	}
	p.silent += passed
	return p.silent >= p.after
}

// running is the time that the threads of a process have run, in nanoseconds: the
// first field of proc_pid_schedstat, summed. It is not known on a kernel without
// CONFIG_SCHED_INFO. It falls when a thread ends.
func running(pid int) (sum uint64, known bool) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, false
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		first, _, _ := bytes.Cut(data, []byte(" "))
		n, err := strconv.ParseUint(string(first), 10, 64)
		if err != nil {
			return 0, false
		}
		sum, known = sum+n, true
	}
	return sum, known
}

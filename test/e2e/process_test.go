package e2e

import (
	"bytes"
	"os"
	"strings"
	"sync"
	"time"

	"fairlead.dev/lab/rig"
)

// How long things may take that nobody waits for twice. Both tell what hangs from what is slow, on a machine that has
// much else to do, too.
const (
	// stopTime is for a process to end before it is killed.
	stopTime = rig.Patience
	// answerTime is for one request, connecting included.
	answerTime = 30 * time.Second
)

// lockedBuffer takes a process's output while a test reads it.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

// lastLine is the last line of a file.
func lastLine(path string) (string, error) {
	raw, err := os.ReadFile(path)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return lines[len(lines)-1], err
}

// cutFile copies the first half of a file.
func cutFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw[:len(raw)/2], 0o600)
}

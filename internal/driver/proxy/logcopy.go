package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// copyEvery is how often the log is looked at while Envoy is silent.
	copyEvery = 250 * time.Millisecond
	// noteEvery is how often the position is written down, and so the time of which a
	// supervisor after a crash copies lines again.
	noteEvery = time.Second
	// lastCopy is how long the end of a supervisor waits for a reader that takes nothing.
	lastCopy = 2 * time.Second
	// maxPiece bounds a line; a longer one is copied in pieces.
	maxPiece = 64 << 10
	// copyBlock is what is read and written at once.
	copyBlock = 4 * maxPiece
	// keptLog is how much of the log stays after it was copied, for support bundles.
	keptLog = 4 << 20
	// freeBlock is how much is freed at once.
	freeBlock = 1 << 20
	// maxSize bounds the size of the file, most of which is a hole, far below what file systems
	// allow (ext4: 16 TiB). The file is emptied then; what Envoy writes in between is lost.
	maxSize = 1 << 40
)

// logCopy copies what Envoy writes into its log, line by line, to another writer. It frees the
// part of the file that was copied and leaves the file's size as it is: Envoy has it open for
// appending, so nothing that it writes meanwhile is lost.
//
// A writer that hangs does not let the log grow: above maxLog the oldest lines that were not
// copied are dropped, and counted.
type logCopy struct {
	path, notePath string
	to             io.Writer
	log            *slog.Logger
	now            func() time.Time
	punch          func(f *os.File, from, to int64) error // a hole

	mu      sync.Mutex
	at      copyNote  // the file, and the bytes of it that were copied or dropped
	next    int64     // the bytes that were read
	noted   copyNote  // what was written down last
	wrote   time.Time // when that was
	freed   int64     // the bytes that were freed
	dropped int       // lines since the copy began to fail
	failing bool      // until it has caught up
	refused bool      // the last lines, by the writer
}

// copyNote is what is written down for the next supervisor.
type copyNote struct {
	Inode  uint64 `json:"inode"`
	Copied int64  `json:"copied"`
}

// newLogCopy goes on where an earlier one was. Without its note, what is in the log is not
// copied: agents with other settings wrote none.
func newLogCopy(path, notePath string, to io.Writer, log *slog.Logger, now func() time.Time) *logCopy {
	c := &logCopy{path: path, notePath: notePath, to: to, log: log, now: now, punch: punchHole}
	if info, err := os.Lstat(path); err == nil {
		c.at = copyNote{Inode: inodeOf(info), Copied: info.Size()}
		var n copyNote
		if data, err := os.ReadFile(notePath); err == nil && json.Unmarshal(data, &n) == nil {
			if c.at.Copied = 0; n.Inode == c.at.Inode && n.Copied >= 0 && n.Copied <= info.Size() {
				c.at.Copied = n.Copied
			}
		}
	}
	c.next = c.at.Copied
	c.note()
	return c
}

func inodeOf(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func punchHole(f *os.File, from, to int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
}

// copyLog begins to copy the log to Output, if there is one. end copies the rest, unless Output hangs.
func (s *Supervisor) copyLog() (end func()) {
	log, note := s.path("envoy.log"), s.path("envoy.log.copied")
	if s.config.Output == nil {
		_ = remove(note) // what this supervisor leaves in the log stays there
		return func() {}
	}
	s.copy = newLogCopy(log, note, s.config.Output, s.config.Log, s.config.Now)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.copy.run(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(2 * lastCopy):
		}
	}
}

// boundLog keeps the log from growing.
func (s *Supervisor) boundLog() error {
	if s.copy != nil {
		return s.copy.bound()
	}
	return boundLog(s.path("envoy.log"))
}

// run copies until ctx is done, and then what is left.
func (c *logCopy) run(ctx context.Context) {
	tick := time.NewTicker(copyEvery)
	defer tick.Stop()
	buffer := make([]byte, copyBlock)
	for {
		for ctx.Err() == nil && c.step(buffer) {
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		for until := c.now().Add(lastCopy); c.step(buffer) && c.now().Before(until); {
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.note()
		return
	}
}

// step copies one block and says whether there was one.
func (c *logCopy) step(buffer []byte) bool {
	f, err := c.open()
	if err != nil {
		return false // there is no log yet
	}
	defer f.Close()
	lines, ends, err := c.read(f, buffer)
	if err != nil || len(lines) == 0 {
		c.resolved(f, 0, 0, nil)
		return false
	}
	n, err := c.to.Write(lines) // it may hang
	if err == nil && n < len(lines) {
		err = io.ErrShortWrite
	}
	c.resolved(f, ends, bytes.Count(lines[n:], []byte("\n")), err)
	return true
}

// open opens the log, and begins at its start if it is another file than before or was emptied.
func (c *logCopy) open() (*os.File, error) {
	f, err := os.OpenFile(c.path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if inode := inodeOf(info); inode != c.at.Inode || info.Size() < c.next {
		c.at, c.next, c.freed = copyNote{Inode: inode}, 0, 0
	}
	return f, nil
}

// read takes the next whole lines, and says where they end. A line that is longer than maxPiece
// ends there.
func (c *logCopy) read(f *os.File, buffer []byte) (lines []byte, ends int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next, err = skipHole(f, c.next); err != nil {
		return nil, 0, err
	}
	// Room for the ends of pieces.
	n, err := f.ReadAt(buffer[:copyBlock-copyBlock/maxPiece], c.next)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	whole := bytes.LastIndexByte(buffer[:n], '\n') + 1
	if whole == 0 {
		if n < maxPiece {
			return nil, 0, nil
		}
		whole = maxPiece
	}
	c.next += int64(whole)
	return pieces(buffer[:whole], buffer), c.next, nil
}

// pieces ends every line after maxPiece bytes. buffer is that of the lines, with room for that.
func pieces(lines, buffer []byte) []byte {
	long := false
	for line := range bytes.Lines(lines) {
		long = long || len(line) > maxPiece || line[len(line)-1] != '\n'
	}
	if !long {
		return lines
	}
	out := buffer[:0]
	for line := range bytes.Lines(bytes.Clone(lines)) {
		for line = bytes.TrimSuffix(line, []byte("\n")); len(line) > maxPiece; line = line[maxPiece:] {
			out = append(append(out, line[:maxPiece]...), '\n')
		}
		out = append(append(out, line...), '\n')
	}
	return out
}

// skipHole is where the data after a position begins: a supervisor that died may have freed it.
func skipHole(f *os.File, at int64) (int64, error) {
	data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case err == nil:
		return data, nil
	case errors.Is(err, unix.ENXIO): // a hole up to the end, or the end
		info, err := f.Stat()
		if err != nil {
			return at, err
		}
		return max(at, info.Size()), nil
	default:
		return at, nil // a file system without holes
	}
}

// resolved takes down what became of the lines up to a position; 0: there were none.
func (c *logCopy) resolved(f *os.File, ends int64, lost int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ends > c.at.Copied && ends <= c.next { // and bound did not pass it
		c.at.Copied = ends
	}
	switch {
	case ends > 0:
		if c.refused = err != nil; c.refused {
			c.fails(lost, err)
		}
	case c.failing && !c.refused:
		c.log.Warn("all lines of the proxy are copied again", "dropped", c.dropped)
		c.failing, c.dropped = false, 0
	}
	if c.at != c.noted && c.now().Sub(c.wrote) >= noteEvery {
		c.note()
	}
	c.free(f, c.at.Copied-keptLog)
}

// fails says once that lines are lost.
func (c *logCopy) fails(lost int, err error) {
	c.dropped += lost
	if !c.failing {
		c.failing = true
		c.log.Error("lines of the proxy are dropped", "error", err)
	}
}

// note writes down what was copied.
func (c *logCopy) note() {
	data, err := json.Marshal(c.at)
	c.wrote = c.now()
	if err == nil {
		fresh := c.notePath + ".new"
		err = errors.Join(remove(fresh), os.WriteFile(fresh, append(data, '\n'), 0o600), os.Rename(fresh, c.notePath))
	}
	if err != nil {
		c.log.Warn("cannot write down how much of the proxy's log was copied; the next agent copies it again", "error", err)
		return
	}
	c.noted = c.at
}

// free gives back the space of the file's beginning, and says whether the file system can do that.
func (c *logCopy) free(f *os.File, upTo int64) bool {
	upTo -= upTo % freeBlock
	if upTo <= c.freed {
		return true
	}
	if err := c.punch(f, c.freed, upTo); err != nil {
		return false
	}
	c.freed = upTo
	return true
}

// errSlow says that the writer hangs, or takes less than Envoy writes.
var errSlow = errors.New("the standard output is too slow")

// bound drops the oldest lines of a log of which more than maxLog was not copied. Where the file
// system cannot free a part, it treats the log as boundLog does: what was not copied by then is
// lost.
func (c *logCopy) bound() error {
	f, err := c.open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("limit the proxy's log: %w", err)
	}
	defer f.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("limit the proxy's log: %w", err)
	}
	able := c.free(f, c.at.Copied-keptLog)
	if size := info.Size(); size-c.at.Copied > maxLog {
		from := c.next
		if c.next, err = nextLine(f, max(from, size-maxLog/2)); err != nil {
			return fmt.Errorf("limit the proxy's log: %w", err)
		}
		c.fails(countLines(f, from, c.next), errSlow)
		c.at.Copied = c.next
		c.note()
		able = c.free(f, c.next)
	}
	switch {
	case !able:
		err = boundLog(c.path)
	case info.Size() > maxSize && c.at.Copied == info.Size():
		err = f.Truncate(0)
	default:
		return nil
	}
	if info, e := f.Stat(); e == nil && info.Size() < c.next {
		c.at.Copied, c.next, c.freed = 0, 0, 0
		c.note()
	}
	return err
}

// nextLine is where the line after a position begins, or that position if none does within maxPiece.
func nextLine(f *os.File, at int64) (int64, error) {
	buffer := make([]byte, maxPiece)
	n, err := f.ReadAt(buffer, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return at, err
	}
	return at + int64(bytes.IndexByte(buffer[:n], '\n')+1), nil
}

// countLines counts the lines of a part of a file, without its holes.
func countLines(f *os.File, from, to int64) (lines int) {
	buffer := make([]byte, copyBlock)
	for from < to {
		var err error
		if from, err = skipHole(f, from); err != nil || from >= to {
			return lines
		}
		n, _ := f.ReadAt(buffer[:min(copyBlock, to-from)], from)
		if n == 0 {
			return lines
		}
		lines += bytes.Count(buffer[:n], []byte("\n"))
		from += int64(n)
	}
	return lines
}

package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// copying is a copy of a log, whose time the test passes.
type copying struct {
	*logCopy
	t      *testing.T
	envoy  *os.File
	logs   *records
	at     time.Time
	buffer []byte
}

func newCopying(t *testing.T, dir string, to interface{ Write([]byte) (int, error) }) *copying {
	t.Helper()
	path := filepath.Join(dir, "envoy.log")
	c := &copying{t: t, logs: &records{Handler: slog.DiscardHandler}, at: time.Unix(0, 0), buffer: make([]byte, copyBlock)}
	c.logCopy = newLogCopy(path, path+".copied", to, slog.New(enabled{c.logs}), func() time.Time { return c.at })
	var err error
	if c.envoy, err = openLog(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.envoy.Close() })
	return c
}

// write appends numbered lines, from one to before another.
func (c *copying) write(from, to int) {
	c.t.Helper()
	var b bytes.Buffer
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "%d %s\n", i, strings.Repeat("x", i%200))
	}
	if _, err := c.envoy.Write(b.Bytes()); err != nil {
		c.t.Fatal(err)
	}
}

// all copies all that is there.
func (c *copying) all() {
	for c.step(c.buffer) {
	}
}

// said is how often a message was logged, and the last value of its attribute "dropped".
func (c *copying) said(message string) (times int, dropped int) {
	c.logs.mu.Lock()
	defer c.logs.mu.Unlock()
	for _, r := range c.logs.list {
		if r.Message == message {
			times++
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "dropped" {
					dropped = int(a.Value.Int64())
				}
				return true
			})
		}
	}
	return times, dropped
}

// lineNumbers are those of the lines, each of which must be whole.
func lineNumbers(t *testing.T, text []byte) (list []int) {
	t.Helper()
	for line := range strings.Lines(string(text)) {
		number, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		i, err := strconv.Atoi(number)
		if err != nil || rest != strings.Repeat("x", i%200) {
			t.Fatalf("the line %q is not whole: %v", line, err)
		}
		list = append(list, i)
	}
	return list
}

func count(from, to int) (list []int) {
	for i := from; i < to; i++ {
		list = append(list, i)
	}
	return list
}

// occupied are the bytes of a file that are not in holes.
func occupied(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// output keeps what it takes. While it is held it takes nothing; what it refuses it keeps no part of.
type output struct {
	bytes.Buffer
	hold    sync.Mutex
	refuses error
}

func (o *output) Write(p []byte) (int, error) {
	o.hold.Lock()
	defer o.hold.Unlock()
	if o.refuses != nil {
		return 0, o.refuses
	}
	return o.Buffer.Write(p)
}

// lag is how many bytes of a log are not copied.
func lag(t *testing.T, c *logCopy, log *os.File) int64 {
	t.Helper()
	info, err := log.Stat()
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return info.Size() - c.at.Copied
}

// TestLogIsCopiedWhileItGrows: each line is copied once, while Envoy writes at speed and what was copied is freed.
func TestLogIsCopiedWhileItGrows(t *testing.T) {
	t.Parallel()
	var out output
	path := filepath.Join(t.TempDir(), "envoy.log")
	var mu sync.Mutex
	at := time.Unix(0, 0)
	hurry := func() time.Time { // the position is written down all the time
		mu.Lock()
		defer mu.Unlock()
		at = at.Add(noteEvery)
		return at
	}
	c := newLogCopy(path, path+".copied", &out, slog.New(slog.DiscardHandler), hurry)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	const lines = 300_000 // 30 MB
	envoy, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer envoy.Close()
	for i := range lines {
		if _, err := fmt.Fprintf(envoy, "%d %s\n", i, strings.Repeat("x", i%200)); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			if err := c.bound(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the copy to be near", func() bool { return lag(t, c, envoy) < maxLog/2 }) // a machine may have no time for it
		}
	}
	eventually(t, "all is copied", func() bool { return lag(t, c, envoy) == 0 })
	cancel()
	running.Wait()
	if got := lineNumbers(t, out.Bytes()); !slices.Equal(got, count(0, lines)) {
		t.Errorf("%d lines were copied, want each of %d once", len(got), lines)
	}
	if got := occupied(t, path); got > keptLog+2*freeBlock {
		t.Errorf("the log occupies %d bytes", got)
	}
}

// TestLastLinesAfterAHole: what was freed is no line.
func TestLastLinesAfterAHole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "envoy.log")
	if err := os.WriteFile(path, append(make([]byte, 4096), "of a line\nthe end\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := lastLines(path, 0); got != "of a line | the end" {
		t.Errorf("the last lines are %q", got)
	}
}

// TestCopyGoesOn: a supervisor goes on where one before ended; after a crash the lines of a second come again.
func TestCopyGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out output
	next := func(want ...int) {
		t.Helper()
		if got := lineNumbers(t, out.Bytes()); !slices.Equal(got, want) {
			t.Errorf("copied %v, want %v", got, want)
		}
		out.Reset()
	}
	c := newCopying(t, dir, &out)
	c.write(0, 10)
	c.all()
	next(count(0, 10)...)
	c.at = c.at.Add(noteEvery)
	c.write(10, 20)
	c.all() // and writes it down
	next(count(10, 20)...)
	c.write(20, 30)
	c.all()
	next(count(20, 30)...)

	c = newCopying(t, dir, &out) // after a crash
	c.write(30, 40)
	c.all()
	next(count(20, 40)...)

	ended, end := context.WithCancel(t.Context())
	end()
	c.write(40, 50)
	c.run(ended)
	next(count(40, 50)...)
	c.write(50, 60)
	c = newCopying(t, dir, &out)
	c.all()
	next(count(50, 60)...)

	// Another file, and one that was emptied.
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	c = newCopying(t, dir, &out)
	c.write(0, 5)
	c.run(ended)
	next(count(0, 5)...)
	if err := os.Truncate(c.path, 0); err != nil {
		t.Fatal(err)
	}
	c.write(6, 8)
	c.all()
	next(6, 7)

	// Of a supervisor that copied nothing there is no note.
	if err := os.Remove(c.notePath); err != nil {
		t.Fatal(err)
	}
	c = newCopying(t, dir, &out)
	c.write(8, 9)
	c.all()
	next(8)
}

// TestCopyThatHangs: a standard output that takes nothing does not let the log grow, and what is lost is counted.
func TestCopyThatHangs(t *testing.T) {
	t.Parallel()
	var out output
	c := newCopying(t, t.TempDir(), &out)
	out.hold.Lock()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	const block, blocks = 20_000, 30 // 60 MB
	for i := range blocks {
		c.write(i*block, (i+1)*block)
		if err := c.bound(); err != nil {
			t.Fatal(err)
		}
		if got := occupied(t, c.path); got > maxLog+freeBlock {
			t.Fatalf("the log occupies %d bytes", got)
		}
	}
	out.hold.Unlock()
	again := "all lines of the proxy are copied again"
	eventually(t, "it has caught up", func() bool {
		times, _ := c.said(again)
		return times == 1
	})
	cancel()
	running.Wait()
	got := lineNumbers(t, out.Bytes())
	times, _ := c.said("lines of the proxy are dropped")
	if _, dropped := c.said(again); times != 1 || dropped == 0 || len(got)+dropped != block*blocks {
		t.Errorf("%d lines were copied and %d dropped, of %d; that was said %d times", len(got), dropped, block*blocks, times)
	}
	if !slices.IsSorted(got) || len(slices.Compact(got)) != len(got) || got[len(got)-1] != block*blocks-1 {
		t.Error("lines were copied twice, or the last ones were not")
	}
}

// TestCopyIsRefused: lines that the standard output refuses are counted; the next ones are copied.
func TestCopyIsRefused(t *testing.T) {
	t.Parallel()
	out := output{refuses: errors.New("nobody reads")}
	c := newCopying(t, t.TempDir(), &out)
	for i := range 3 {
		c.write(10*i, 10*i+10)
		c.all()
	}
	out.refuses = nil
	c.write(30, 40)
	c.all()
	if got := lineNumbers(t, out.Bytes()); !slices.Equal(got, count(30, 40)) {
		t.Errorf("copied %v", got)
	}
	before, _ := c.said("lines of the proxy are dropped")
	if after, dropped := c.said("all lines of the proxy are copied again"); before != 1 || after != 1 || dropped != 30 {
		t.Errorf("said %d and %d times, with %d lines; want once, with 30", before, after, dropped)
	}
}

// TestCopyOfLongLines: only whole lines are copied; a line that is too long is copied in pieces.
func TestCopyOfLongLines(t *testing.T) {
	t.Parallel()
	var out output
	c := newCopying(t, t.TempDir(), &out)
	say := func(text, want string) {
		t.Helper()
		out.Reset()
		if _, err := c.envoy.WriteString(text); err != nil {
			t.Fatal(err)
		}
		c.all()
		if got := out.String(); got != want {
			t.Errorf("%d bytes were copied as %d, want %d", len(text), len(got), len(want))
		}
	}
	piece := strings.Repeat("y", maxPiece)
	say("half", "")
	say(" a line\n", "half a line\n")
	say(piece+piece+"z\nnext\n", piece+"\n"+piece+"\nz\nnext\n")
	say(piece+"z", piece+"\n")
	say("\n", "z\n")
	long := strings.Repeat(piece, 9)
	say("first\n"+long+"\n", "first\n"+strings.Repeat(piece+"\n", 9))
}

// taking has an output call during while it takes something.
type taking struct {
	output
	during func()
}

func (o *taking) Write(p []byte) (int, error) {
	if o.during != nil {
		o.during()
	}
	return o.output.Write(p)
}

// TestEmptiedLogKeepsWhatIsNotCopied: after somebody has emptied a log of which much was copied, nothing that comes then is freed before it
// was copied.
func TestEmptiedLogKeepsWhatIsNotCopied(t *testing.T) {
	t.Parallel()
	var out taking
	c := newCopying(t, t.TempDir(), &out)
	c.at = c.at.Add(noteEvery)
	const many = 100_000 // 11 MB
	c.write(0, many)
	c.all()
	c.at = c.at.Add(noteEvery)
	c.write(many, many+1)
	c.all() // and is written down
	if err := c.envoy.Truncate(0); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	out.during = func() {
		out.during = nil
		c.write(10, many)
	}
	c.write(0, 10)
	c.all()
	if got := lineNumbers(t, out.Bytes()); !slices.Equal(got, count(0, many)) {
		t.Errorf("%d lines were copied, want each of %d once", len(got), many)
	}
}

// TestCopyWithoutHoles: where a file system cannot free a part of a file, the log is bounded as without a copy.
func TestCopyWithoutHoles(t *testing.T) {
	t.Parallel()
	var out output
	c := newCopying(t, t.TempDir(), &out)
	c.punch = func(*os.File, int64, int64) error { return syscall.EOPNOTSUPP }
	const block, blocks = 20_000, 20 // 40 MB
	for i := range blocks {
		c.at = c.at.Add(noteEvery)
		c.write(i*block, (i+1)*block)
		c.all()
		if err := c.bound(); err != nil {
			t.Fatal(err)
		}
		if got := occupied(t, c.path); got > maxLog+freeBlock {
			t.Fatalf("the log occupies %d bytes", got)
		}
	}
	if got := lineNumbers(t, out.Bytes()); !slices.Equal(got, count(0, block*blocks)) {
		t.Errorf("%d lines were copied, want each of %d once", len(got), block*blocks)
	}
}

// TestCopiedLogIsEmptied: long before a file system's limit.
func TestCopiedLogIsEmptied(t *testing.T) {
	t.Parallel()
	var out output
	c := newCopying(t, t.TempDir(), &out)
	if err := c.envoy.Truncate(maxSize); err != nil {
		t.Skip("files cannot be that long here: ", err)
	}
	c.write(10, 20)
	c.all()
	if err := c.bound(); err != nil {
		t.Fatal(err)
	}
	info, err := c.envoy.Stat()
	if err != nil || info.Size() != 0 {
		t.Errorf("the log has %d bytes, %v", info.Size(), err)
	}
	c.write(20, 30)
	c.all()
	if got := lineNumbers(t, out.Bytes()); !slices.Equal(got, count(10, 30)) {
		t.Errorf("copied %v", got)
	}
}

// TestOutput: what Envoy says is copied while it runs, up to its end.
func TestOutput(t *testing.T) {
	t.Parallel()
	dir := runDir(t)
	c := script(t, dir, "trap 'echo its end; exit 3' TERM; echo its beginning; while :; do sleep 0.1; done")
	var out output
	c.Output = &out
	c.HungAfter = time.Hour
	r := begin(t, c)
	has := func(want string) {
		t.Helper()
		eventually(t, want, func() bool {
			out.hold.Lock()
			defer out.hold.Unlock()
			return out.String() == want
		})
	}
	has("its beginning\n")
	r.stop()
	has("its beginning\nits end\n")
}

// TestAccessLogInOutput: a real Envoy's access log goes to the output, whoever runs Envoy.
func TestAccessLogInOutput(t *testing.T) {
	for name, user := range map[string]func(*testing.T) User{
		"another user": another,
		"the agent":    func(*testing.T) User { return User{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := configure(t, runDir(t))
			var out output
			c.User, c.OnStop, c.Output = user(t), Drain, &out
			l := model.Listener{ID: "http-1", Port: freePort(t), Protocol: model.ProtocolHTTP}
			serves(t, &c, l, xds.Options{AccessLog: "/dev/stdout"})
			begin(t, c).ready(1)
			eventually(t, "an answer", func() bool {
				r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/asked", l.Port))
				return err == nil && r.Body.Close() == nil
			})
			eventually(t, "its line", func() bool {
				out.hold.Lock()
				defer out.hold.Unlock()
				return strings.Contains(out.String(), `"path":"/asked"`)
			})
		})
	}
}

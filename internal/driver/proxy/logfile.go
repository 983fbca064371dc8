package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxLog bounds Envoy's log; there is one older file of at most that size.
const maxLog = 16 << 20

// openLog opens the log for appending.
func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the proxy's log: %w", err)
	}
	return f, nil
}

// boundLog copies a log that has grown too large to path.1 and empties it. Envoy
// has it open, for appending, and goes on writing at the new end. What it writes in
// between is lost.
func boundLog(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= maxLog {
		return nil
	}
	if err != nil {
		return fmt.Errorf("limit the proxy's log: %w", err)
	}
	from, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("limit the proxy's log: %w", err)
	}
	defer from.Close()
	to, err := os.OpenFile(path+".1", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		if info.Size() > maxLog {
			_, err = from.Seek(info.Size()-maxLog, io.SeekStart)
		}
		if err == nil {
			_, err = io.Copy(to, io.LimitReader(from, maxLog)) // Envoy may write meanwhile
		}
		err = errors.Join(err, to.Close())
	}
	// The disk may be full: then room matters more than the old lines.
	if e := from.Truncate(0); e != nil || err != nil {
		return fmt.Errorf("limit the proxy's log: %w", errors.Join(err, e))
	}
	return nil
}

// lastLines are the last lines of a log after its first bytes, at most three and 600 bytes,
// as one. A log that has fewer bytes was bounded. Zeros are of a hole, whose lines were copied.
func lastLines(path string, after int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 4096
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	if after > info.Size() {
		after = 0
	}
	if _, err := f.Seek(max(after, info.Size()-tail), io.SeekStart); err != nil {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, tail))
	if err != nil {
		return ""
	}
	data = data[bytes.LastIndexByte(data, 0)+1:]
	lines := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	text := strings.ToValidUTF8(strings.Join(lines[max(0, len(lines)-3):], " | "), "?")
	return text[max(0, len(text)-600):]
}

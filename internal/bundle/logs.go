package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

const (
	// tailBytes bounds what is taken of a log.
	tailBytes = 4 << 20
	// journalLines bounds what is asked of the journal.
	journalLines = 20000
)

// privateKey is a private key in PEM, whole or cut off, its lines ended or escaped.
var privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)

// scrub takes private keys out of what is collected, wherever somebody put them.
func scrub(body []byte) []byte {
	return privateKey.ReplaceAll(body, []byte("[redacted: a private key]"))
}

// Tail is the end of a file.
func Tail(name, path string) Part {
	return Part{Name: name, Fetch: func(context.Context) ([]byte, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if skip := info.Size() - tailBytes; skip > 0 {
			if _, err := f.Seek(skip, io.SeekStart); err != nil {
				return nil, err
			}
		}
		body, err := io.ReadAll(io.LimitReader(f, tailBytes))
		if info.Size() > tailBytes {
			body = wholeLines(body)
		}
		return body, err
	}}
}

// wholeLines leaves the first line out, which may be half of one.
func wholeLines(body []byte) []byte {
	_, rest, _ := bytes.Cut(body, []byte("\n"))
	return rest
}

// Journal is what systemd's journal has of the units of Fairlead.
func Journal(name string) Part {
	return Part{Name: name, Fetch: func(ctx context.Context) ([]byte, error) {
		path, err := exec.LookPath("journalctl")
		if err != nil {
			return nil, errors.New("this machine has no journalctl: the logs are where the processes write them")
		}
		body, err := exec.CommandContext(ctx, path, "--no-pager", "--quiet", "--output=short-iso-precise", "--unit=fairlead*", "--lines="+strconv.Itoa(journalLines)).CombinedOutput()
		if err != nil {
			return body, fmt.Errorf("ask the journal: %w", err)
		}
		if len(body) == 0 {
			return nil, errors.New("the journal has nothing of units fairlead*")
		}
		if len(body) > tailBytes {
			body = wholeLines(body[len(body)-tailBytes:])
		}
		return body, nil
	}}
}

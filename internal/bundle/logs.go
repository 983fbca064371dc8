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
	"strings"
)

const (
	// tailBytes bounds what is taken of a log.
	tailBytes = 4 << 20
	// journalLines bounds what is asked of the journal.
	journalLines = 20000
)

// privateKey is a private key in PEM, whole or cut off, its lines ended or escaped. It ends where something else
// begins: whoever writes the first line of a key into a log must not have the rest of the log taken out.
var privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:\s|\\[nr])*(?:[A-Za-z-]+: [^\n"\\]*(?:\s|\\[nr])+)*[A-Za-z0-9+/=\\\s]*(?:-----END [A-Z0-9 ]*PRIVATE KEY-----)?`)

// credentials are those of HTTP, as people write them into routes, and query is what follows the path in a line of
// the access log.
var (
	credentials = regexp.MustCompile(`(?i)\b(bearer|basic) +[A-Za-z0-9._~+/=-]{8,}`)
	query       = regexp.MustCompile(`("path":"[^"?]*\?)[^"]*`)
)

// privateKeyBegin and privateKeyEnd are the lines around a private key.
var (
	privateKeyBegin = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`)
	privateKeyEnd   = regexp.MustCompile(`-----END [A-Z0-9 ]*PRIVATE KEY-----`)
)

// redacted is what stands in the place of a private key.
const redacted = "[redacted: a private key]"

// scrub takes private keys and credentials out of what is collected, wherever somebody put them. The tail
// of a log may begin inside one: where a key ends before any begins, everything up to
// there goes.
func scrub(body []byte) []byte {
	var out []byte
	if end := privateKeyEnd.FindIndex(body); end != nil {
		if begin := privateKeyBegin.FindIndex(body[:end[0]]); begin == nil {
			out, body = []byte(redacted), body[end[1]:]
		}
	}
	body = privateKey.ReplaceAll(body, []byte(redacted))
	body = credentials.ReplaceAll(body, []byte("$1 [redacted]"))
	return append(out, query.ReplaceAll(body, []byte("$1[redacted]"))...)
}

// Tail is the end of a file. A hole before it, whose lines were copied elsewhere, is no part of it.
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
		hole := bytes.LastIndexByte(body, 0) + 1
		if body = body[hole:]; info.Size() > tailBytes || hole > 0 {
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
		ask := exec.CommandContext(ctx, path, "--no-pager", "--quiet", "--output=short-iso-precise", "--unit=fairlead*", "--lines="+strconv.Itoa(journalLines))
		var says bytes.Buffer // what journalctl says is no part of any log
		ask.Stderr = &says
		body, err := ask.Output()
		// With a pattern that no unit matches it ends with 1 and "No data available", by its
		// version; with no journal at all it prints nothing, or says so, and may end with 0.
		if why := strings.ReplaceAll(strings.TrimSpace(says.String()), "\n", "; "); len(body) == 0 && ctx.Err() == nil {
			if why != "" {
				why = " (journalctl: " + why + ")"
			}
			return nil, errors.New("the journal has nothing of units fairlead*: unless they run under systemd, the logs are where the processes write them" + why)
		}
		if err != nil {
			return body, fmt.Errorf("ask the journal: %w", err)
		}
		if len(body) > tailBytes {
			body = wholeLines(body[len(body)-tailBytes:])
		}
		return body, nil
	}}
}

// Package bundle collects what somebody needs to help with a problem into one
// archive: status, metrics, health, logs and the resources that routing is made of.
//
// It never collects Secrets, takes private keys out of whatever else it finds, and takes what it can get: a part that cannot be
// had is named with its error in the archive's index, and the rest is there.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Part is one file of a bundle.
type Part struct {
	Name  string // path inside the bundle: "plane/status.json"
	Fetch func(context.Context) ([]byte, error)
}

// Outcome is what became of a part.
type Outcome struct {
	Name  string
	File  string // where it is in the bundle; empty: nowhere
	Bytes int
	Err   error
}

// answerSuffix ends the file of an answer that is not of the kind that the part's name says.
const answerSuffix = ".MISSING.txt"

// fileOf is the name of the file that a part's body becomes. In the place of a document
// there may be a sentence on why there is none: programs would read it as the document.
func fileOf(p Part, body []byte, err error) string {
	switch {
	case len(body) == 0:
		return ""
	case err != nil && strings.HasSuffix(p.Name, ".json") && !json.Valid(body):
		return p.Name + answerSuffix
	}
	return p.Name
}

// Write fetches every part and writes them as a gzipped tar to w under the folder
// root, with an index.txt that says what is there and what is not. Each part may
// take perPart; a part's error is an Outcome, an error of w ends the writing.
func Write(ctx context.Context, w io.Writer, root string, now time.Time, perPart time.Duration, parts []Part) ([]Outcome, error) {
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	add := func(name string, body []byte) error {
		header := &tar.Header{Name: root + "/" + name, Mode: 0o600, Size: int64(len(body)), ModTime: now, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s to the bundle: %w", name, err)
		}
		if _, err := archive.Write(body); err != nil {
			return fmt.Errorf("write %s to the bundle: %w", name, err)
		}
		return nil
	}
	var outcomes []Outcome
	for _, p := range parts {
		body, err := fetch(ctx, p, perPart)
		body = scrub(body)
		file := fileOf(p, body, err)
		outcomes = append(outcomes, Outcome{Name: p.Name, File: file, Bytes: len(body), Err: err})
		if file == "" {
			continue
		}
		if err := add(file, body); err != nil {
			return outcomes, err
		}
	}
	if err := add("index.txt", index(now, outcomes)); err != nil {
		return outcomes, err
	}
	if err := archive.Close(); err != nil {
		return outcomes, fmt.Errorf("finish the bundle: %w", err)
	}
	if err := zip.Close(); err != nil {
		return outcomes, fmt.Errorf("finish the bundle: %w", err)
	}
	return outcomes, nil
}

func fetch(ctx context.Context, p Part, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return p.Fetch(ctx)
}

func index(now time.Time, outcomes []Outcome) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "Fairlead support bundle, %s\nSecrets are never collected, and private keys are taken out of logs.\n\n", now.UTC().Format(time.RFC3339))
	sorted := slices.Clone(outcomes)
	slices.SortFunc(sorted, func(x, y Outcome) int { return strings.Compare(x.Name, y.Name) })
	for _, o := range sorted {
		if o.Err != nil {
			fmt.Fprintf(&b, "%-40s missing: %v", o.Name, o.Err)
			if o.File != "" {
				fmt.Fprintf(&b, " (what there is of it: %s)", o.File)
			}
			fmt.Fprintln(&b)
			continue
		}
		fmt.Fprintf(&b, "%-40s %d bytes\n", o.Name, o.Bytes)
	}
	return []byte(b.String())
}

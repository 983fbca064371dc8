package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func revisionsHandler(revisions func(context.Context) ([]model.Revision, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		list, err := revisions(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		body, err := json.Marshal(list)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, append(body, '\n'))
	}
}

// Revisions asks a plane's console for the steps of routing, newest first.
func (c Client) Revisions(ctx context.Context) ([]v1.Revision, error) {
	body, err := c.Get(ctx, v1.RevisionsPath)
	if err != nil {
		return nil, err
	}
	var list []v1.Revision
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read the revisions from %s: %w", c.URL, err)
	}
	return list, nil
}

// WriteRevisions renders revisions for a terminal, the newest first; most bounds how many
// stand above the oldest state, 0 does not.
func WriteRevisions(w io.Writer, list []v1.Revision, most int) error {
	t := tabwriter.NewWriter(printable{w}, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "REVISION\tAT\tCHANGES\tOF\t")
	var epoch uint64
	if len(list) > 0 {
		epoch = list[len(list)-1].Epoch // the plane's own
	}
	last := len(list) - 1
	for i, r := range list {
		if most > 0 && i >= most && i < last {
			continue
		}
		if left := last - most; most > 0 && i == last && left > 0 {
			fmt.Fprintf(t, "...\t\t\t\t%d older ones: --all prints them\n", left)
		}
		var owners []string
		for _, o := range r.Owners {
			owners = append(owners, o.String())
		}
		name, note := r.NameAt(epoch), ""
		if r.Held {
			note = "held back"
		}
		if r.First {
			name, note = "start", "the oldest state that is known"
			if r.LetGo > 0 {
				note += fmt.Sprintf("; %d revisions before it were let go", r.LetGo)
			}
			if r.Lacks != "" {
				note += "; " + r.Lacks
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", name, r.At.UTC().Format(time.RFC3339), r.Changes, strings.Join(owners, ", "), note)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the revisions: %w", err)
	}
	return nil
}

// writeFreeze says that routing is frozen.
func writeFreeze(w io.Writer, f *v1.FreezeStatus, o TextOptions) {
	if f == nil {
		return
	}
	fmt.Fprintf(w, "           FROZEN for %s", age(o.Now, f.Since))
	if f.Reason != "" {
		fmt.Fprintf(w, ": %s", f.Reason)
	}
	fmt.Fprintln(w)
	if f.Unknown {
		fmt.Fprintln(w, "           this plane started later: machines receive nothing and keep their configuration, including endpoints")
	} else {
		fmt.Fprintf(w, "           edges have routing as of %s; %d changes are held back; `fairlead unfreeze` lets them through\n", f.AsOf.UTC().Format(time.RFC3339), f.Held)
	}
}

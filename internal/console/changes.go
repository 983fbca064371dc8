package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

var (
	errSince  = errors.New("since: want a time such as 2026-01-31T09:30:00Z")
	errObject = errors.New("object: want KIND, KIND/NAME or KIND/NAMESPACE/NAME, such as HTTPRoute/shop/www")
)

// changesHandler lists changes. A question with a namespace is shown those of its objects only.
func changesHandler(list func(context.Context) ([]model.Change, error), kind func(string) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		keep, err := changesAsked(q, kind)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		all, err := list(r.Context())
		rows := make([]model.Change, 0, len(all))
		for _, c := range all {
			if keep(c) {
				rows = append(rows, c)
			}
		}
		answerPage(w, r, changeOrder, rows, err)
	}
}

// changesAsked says which changes a question is about.
func changesAsked(q url.Values, kind func(string) error) (func(model.Change) bool, error) {
	var since time.Time
	if text := q.Get("since"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			return nil, errSince
		}
	}
	var of model.Object
	switch parts := strings.Split(q.Get("object"), "/"); {
	case slices.Contains(parts, "") && q.Get("object") != "" || len(parts) > 3:
		return nil, errObject
	case len(parts) == 3:
		of = model.Object{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
	case len(parts) == 2:
		of = model.Object{Kind: parts[0], Name: parts[1]}
	default:
		of = model.Object{Kind: parts[0]}
	}
	if of.Kind != "" {
		if err := kind(of.Kind); err != nil {
			return nil, fmt.Errorf("object: %w", err)
		}
	}
	namespace, who := q.Get("namespace"), q.Get("who")
	return func(c model.Change) bool {
		return (namespace == "" || c.Object.Namespace == namespace) && (who == "" || c.Who == who) && !c.At.Before(since) &&
			(of.Kind == "" || strings.EqualFold(of.Kind, c.Object.Kind)) && (of.Name == "" || of.Name == c.Object.Name) &&
			(of.Namespace == "" || of.Namespace == c.Object.Namespace)
	}, nil
}

var changeOrder = order[model.Change]{
	key: func(c model.Change) string { return strconv.FormatUint(c.Number, 10) },
	text: func(c model.Change) string {
		text := c.Object.String() + " " + c.Who + " " + string(c.Verb)
		for _, f := range c.Diff {
			text += " " + f.Path + " " + f.Old + " " + f.New
		}
		return text
	},
	by: map[string]func(a, b model.Change) int{
		"at":     func(a, b model.Change) int { return a.At.Compare(b.At) },
		"who":    compareBy(func(c model.Change) string { return c.Who }),
		"object": compareBy(func(c model.Change) string { return c.Object.String() }),
	},
}

// ChangesQuestion says which changes to list. Its zero value is all of them.
type ChangesQuestion struct {
	Object, Namespace, Who string
	Since                  time.Time
	Limit                  int // 0: no limit
}

// Changes asks a plane for the last changes of objects, newest first.
func (c Client) Changes(ctx context.Context, q ChangesQuestion) ([]v1.Change, error) {
	values := url.Values{}
	for name, text := range map[string]string{"object": q.Object, "namespace": q.Namespace, "who": q.Who} {
		if text != "" {
			values.Set(name, text)
		}
	}
	if !q.Since.IsZero() {
		values.Set("since", q.Since.UTC().Format(time.RFC3339))
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	body, err := c.Get(ctx, v1.ChangesPath+"?"+values.Encode())
	if err != nil {
		return nil, err
	}
	var list []v1.Change
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read the changes from %s: %w", c.URL, err)
	}
	return list, nil
}

// Texts of others have so many characters in a table, unless it is wide.
const (
	whoWidth    = 40
	objectWidth = 64
	fieldWidth  = 40
)

// ChangesOptions say how changes are rendered.
type ChangesOptions struct {
	// Diff has the changed fields below each change.
	Diff bool
	// Wide leaves long names whole.
	Wide bool
}

// WriteChanges renders changes for a terminal, a line a change.
func WriteChanges(w io.Writer, list []v1.Change, o ChangesOptions) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no change matches; planes keep the last 1,000")
		return err
	}
	var lines strings.Builder
	t := tabwriter.NewWriter(&lines, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "REVISION\tAT\tWHO\tCHANGE\tFIELDS\tMACHINES")
	for _, c := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s %s\t%s\t%s\n", changeRevision(c), c.At.UTC().Format(time.RFC3339), o.cut(changeAuthor(c), whoWidth), c.Verb, o.cut(model.Object(c.Object).Key(), objectWidth), o.fieldsText(c), machinesText(c))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the changes: %w", err)
	}
	for i, line := range strings.SplitAfter(lines.String(), "\n") {
		if _, err := io.WriteString(w, line); err != nil {
			return fmt.Errorf("write the changes: %w", err)
		}
		if !o.Diff || i == 0 || i > len(list) {
			continue
		}
		for _, f := range list[i-1].Diff {
			if _, err := fmt.Fprintf(w, "    %s: %s -> %s\n", oneLine(f.Path), valueText(f.Old), valueText(f.New)); err != nil {
				return fmt.Errorf("write the changes: %w", err)
			}
		}
		if more := list[i-1].More; more > 0 {
			fields := "fields"
			if more == 1 {
				fields = "field"
			}
			if _, err := fmt.Fprintf(w, "    %d more %s\n", more, fields); err != nil {
				return fmt.Errorf("write the changes: %w", err)
			}
		}
	}
	return nil
}

func changeRevision(c v1.Change) string {
	if c.Revision == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", c.Epoch, c.Revision)
}

// changeAuthor says who wrote a change. Nothing is left of a deleted object that could say so.
func changeAuthor(c v1.Change) string {
	switch {
	case c.Verb == v1.ChangeDeleted:
		return "(see the audit log)"
	case c.Who == "":
		return "unknown"
	}
	return c.Who
}

// fieldsText names the first changed field.
func (o ChangesOptions) fieldsText(c v1.Change) string {
	if len(c.Diff) == 0 || c.Verb != v1.ChangeChanged {
		return ""
	}
	text := o.cut(c.Diff[0].Path, fieldWidth)
	if n := len(c.Diff) - 1 + c.More; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// machinesText says how many machines have a change, and how long the last of them took.
func machinesText(c v1.Change) string {
	if len(c.Machines) == 0 {
		return ""
	}
	last := c.At
	for _, m := range c.Machines {
		if m.At.After(last) {
			last = m.At
		}
	}
	machines := "machines"
	if len(c.Machines) == 1 {
		machines = "machine"
	}
	return fmt.Sprintf("%d %s within %.1f s", len(c.Machines), machines, last.Sub(c.At).Seconds())
}

func valueText(value string) string {
	if value == "" {
		return "(none)"
	}
	return oneLine(value)
}

// cut is a text in one line, without its middle if it is long: names differ at either end.
func (o ChangesOptions) cut(text string, most int) string {
	text = oneLine(text)
	letters := []rune(text)
	if o.Wide || len(letters) <= most {
		return text
	}
	const gap = "..."
	end := (most - len(gap)) / 2
	return string(letters[:most-len(gap)-end]) + gap + string(letters[len(letters)-end:])
}

// oneLine is a text as it is printed, without tabs and new lines, which would be columns and rows.
func oneLine(text string) string {
	var line strings.Builder
	_, _ = io.WriteString(printable{&line}, text) // a Builder takes everything
	return strings.ReplaceAll(line.String(), "\n", "?")
}

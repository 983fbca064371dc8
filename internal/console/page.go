package console

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	v1 "fairlead.dev/internal/console/v1"
)

// maxSearch bounds the text that is searched for.
const maxSearch = 256

var (
	errContinue = errors.New("continue: its row is gone: ask again without it")
	errLimit    = errors.New("limit: want a number of rows, 1 or more")
	errSearch   = fmt.Errorf("search: want at most %d bytes", maxSearch)
)

// order says how rows of a list are found, sorted and told apart.
type order[T any] struct {
	// key tells a row from all others.
	key func(T) string
	// text is what a search looks at.
	text func(T) string
	// by are the orders that may be asked for, besides that of the list.
	by map[string]func(a, b T) int
}

// page answers one page of a list, which nobody changes: rows that contain the text "search", sorted by "sort" ("-"
// before it turns the order around), at most "limit", after the row at which the page before ended ("continue").
func (o order[T]) page(w http.ResponseWriter, q url.Values, rows []T) ([]T, error) {
	if text := strings.ToLower(q.Get("search")); text != "" {
		if len(text) > maxSearch {
			return nil, errSearch
		}
		rows = slices.DeleteFunc(slices.Clone(rows), func(r T) bool { return !strings.Contains(strings.ToLower(o.text(r)), text) })
	}
	if name := q.Get("sort"); name != "" {
		by, known := o.by[strings.TrimPrefix(name, "-")]
		if !known {
			return nil, fmt.Errorf("sort: want one of %s, with or without - before it", strings.Join(slices.Sorted(maps.Keys(o.by)), ", "))
		}
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b T) int {
			if strings.HasPrefix(name, "-") {
				a, b = b, a
			}
			return by(a, b)
		})
	}
	w.Header().Set(v1.TotalHeader, strconv.Itoa(len(rows)))
	if after := q.Get("continue"); after != "" {
		key, err := base64.RawURLEncoding.DecodeString(after)
		at := slices.IndexFunc(rows, func(r T) bool { return o.key(r) == string(key) })
		if err != nil || at < 0 {
			return nil, errContinue
		}
		rows = rows[at+1:]
	}
	if text := q.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 1 {
			return nil, errLimit
		}
		if limit < len(rows) {
			rows = rows[:limit]
			w.Header().Set(v1.ContinueHeader, base64.RawURLEncoding.EncodeToString([]byte(o.key(rows[limit-1]))))
		}
	}
	return rows, nil
}

// answerPage answers a page, or an error. What takes time is added to the rows of the page only: finish.
func answerPage[T any](w http.ResponseWriter, r *http.Request, o order[T], rows []T, err error, finish ...func([]T) []T) {
	if err != nil {
		answer(w, rows, err)
		return
	}
	rows, err = o.page(w, r.URL.Query(), rows)
	switch {
	case errors.Is(err, errContinue):
		http.Error(w, err.Error(), http.StatusGone)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		for _, f := range finish {
			rows = f(rows)
		}
		answer(w, rows, nil)
	}
}

// compareBy compares rows by a value.
func compareBy[T any, V cmp.Ordered](value func(T) V) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(value(a), value(b)) }
}

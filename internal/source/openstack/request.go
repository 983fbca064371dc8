package openstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"fairlead.dev/internal/source/cloud"
)

const (
	// pageSize is asked for; an API may give less.
	pageSize = 1000
)

// client sends the requests.
type client struct {
	http     *http.Client
	sessions *sessions
	// answerBytes bounds a list, all its pages together.
	answerBytes int64
	identity    string // base URL, with version
	// background limits requests that nobody waits for, so that others find a turn.
	background *rate.Limiter
	now        func() time.Time
}

// scope says by whose token, and in which of its projects, a list is read.
type scope struct {
	token   string // project of the token; empty: that of the credentials
	project string // only this project; empty: all that the token may list
}

type backgroundKey struct{}

// inBackground makes requests leave turns to others.
func inBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, backgroundKey{}, true)
}

// into reads an answer of one value.
func into(value any) func(*stream) error {
	return func(s *stream) error { return s.value(value) }
}

// do sends a request. If the token is refused, it signs in again, once.
func (c *client) do(ctx context.Context, token string, address func(*session) string, query url.Values, read func(*stream) error) error {
	if ctx.Value(backgroundKey{}) != nil {
		if err := c.background.Wait(ctx); err != nil {
			return err
		}
	}
	s, err := c.sessions.get(ctx, token, nil)
	if err != nil {
		return err
	}
	refused, err := c.send(ctx, s, address(s), query, read)
	if !refused {
		return err
	}
	if s, err = c.sessions.get(ctx, token, s); err != nil {
		return err
	}
	_, err = c.send(ctx, s, address(s), query, read)
	return err
}

// send reports whether the token was refused (401), besides the error.
func (c *client) send(ctx context.Context, s *session, address string, query url.Values, read func(*stream) error) (refused bool, _ error) {
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return false, cloud.BadAnswer("%w", err)
	}
	req.Header.Set("X-Auth-Token", s.token)
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		var e *cloud.Error
		if errors.As(err, &e) || ctx.Err() == nil {
			return false, cloud.Classify(err, 0)
		}
		return false, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		e := answerError(resp.StatusCode, resp.Header, body, c.now())
		e.Err = fmt.Errorf("GET %s: %w", req.URL.Path, e.Err)
		return resp.StatusCode == http.StatusUnauthorized, e
	}
	answer := newStream(resp.Body)
	if err = read(answer); err == nil {
		err = answer.end()
	}
	if err == nil || ctx.Err() != nil {
		return false, err
	}
	var e *cloud.Error
	if errors.As(err, &e) {
		return false, cloud.Classify(fmt.Errorf("GET %s: %w", req.URL.Path, err), 0)
	}
	return false, cloud.BadAnswer("GET %s: the answer is not the JSON that was expected: %w", req.URL.Path, err)
}

// page reads one page of a list of load balancers or of their parts, after the entry with the
// ID marker. next is the marker of the next page; empty: this is the last.
func page[T identified](ctx context.Context, c *client, token, path, key string, query url.Values, marker string) (entries []T, next string, _ error) {
	return pageAt[T](ctx, c, token, func(s *session) string { return s.balancers + path }, key, query, marker)
}

func pageAt[T identified](ctx context.Context, c *client, token string, address func(*session) string, key string, query url.Values, marker string) (entries []T, next string, _ error) {
	query = cloneQuery(query)
	if marker != "" {
		query.Set("marker", marker)
	}
	p := pageReader[T]{key: key}
	if err := c.do(ctx, token, address, query, p.read); err != nil {
		return nil, "", err
	}
	return p.entries, p.next, nil
}

// list reads all pages of a list of load balancers or of their parts.
func list[T identified](ctx context.Context, c *client, token, path, key string, query url.Values) ([]T, error) {
	query = cloneQuery(query)
	query.Set("limit", strconv.Itoa(pageSize))
	return listAt[T](ctx, c, token, path, func(s *session) string { return s.balancers + path }, key, query)
}

// projects of the identity service that the token may list: all of them, or those of the user.
func (c *client) projects(ctx context.Context, token, path string) ([]project, error) {
	return listAt[project](ctx, c, token, path, func(*session) string { return c.identity + path }, "projects", nil)
}

// listAt reads all pages of a list. An entry that is there twice counts once. A list whose next
// page has nothing new is an error, since it may go on like this for ever; so is one that is
// larger than an answer may be.
func listAt[T identified](ctx context.Context, c *client, token, path string, address func(*session) string, key string, query url.Values) ([]T, error) {
	ctx, record := cloud.WithRecord(ctx)
	var all []T
	seen := map[string]bool{}
	for marker, pages := "", 1; ; pages++ {
		entries, next, err := pageAt[T](ctx, c, token, address, key, query, marker)
		if err != nil {
			return nil, err
		}
		fresh := false
		for i := range entries {
			if id := idOf(&entries[i]); !seen[id] {
				seen[id], fresh = true, true
				all = append(all, entries[i])
			}
		}
		switch {
		case record.Bytes() > c.answerBytes:
			return nil, cloud.BadAnswer("GET %s: the pages of the list are larger than %d MiB (spec.limits.answerMiB)", path, c.answerBytes>>20)
		case len(all) > listEntries:
			return nil, cloud.BadAnswer("GET %s: the list has more than %d entries", path, listEntries)
		case next == "" || len(entries) == 0:
			return all, nil
		case !fresh:
			return nil, cloud.BadAnswer("GET %s: page %d has nothing new, and a link to one more", path, pages)
		}
		marker = next
	}
}

func cloneQuery(query url.Values) url.Values {
	clone := url.Values{}
	for k, v := range query {
		clone[k] = v
	}
	return clone
}

// query adds the scope to the query of a list.
func (s scope) query(more url.Values) url.Values {
	query := cloneQuery(more)
	if s.project != "" {
		query.Set("project_id", s.project)
	}
	return query
}

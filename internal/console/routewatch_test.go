package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// watchedRow is a route of a host.
func watchedRow(host, name, state string, backends ...model.RouteBackend) model.RouteRow {
	return model.RouteRow{
		Listener: "http-80", Host: host, Match: "prefix /", Name: name, State: state, Backends: backends,
		Owner: model.Object{Kind: "HTTPRoute", Namespace: "shop", Name: name},
	}
}

// streamed serves updates, one after the other, and then hangs.
func streamedUpdates(t *testing.T, updates ...Update) Client {
	t.Helper()
	s := httptest.NewServer(Reads(Config{Watches: map[string]Watch{v1.RoutesPath: func(ctx context.Context, after *Position, _ string) (Update, error) {
		next := 0
		if after != nil {
			next = int(after.Change)
		}
		if next < len(updates) {
			u := updates[next]
			u.At = Position{2, 10 + uint64(next), uint64(next) + 1}
			return u, nil
		}
		<-ctx.Done()
		return Update{}, ctx.Err()
	}}}))
	t.Cleanup(s.Close)
	return Client{URL: s.URL, HTTP: s.Client()}
}

// shownOf is what a view has written after so many updates.
func shownOf(t *testing.T, c Client, v *RouteWatch, updates int) string {
	t.Helper()
	var out strings.Builder
	v.Out, v.Now = &out, func() time.Time { return time.Date(2026, 1, 31, 9, 30, 5, 0, time.UTC) }
	err := c.Watch(t.Context(), v1.RoutesPath, "", "", func(w Watched) error {
		if _, err := v.Show(w); err != nil {
			return err
		}
		if updates--; updates == 0 {
			return errRead
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		t.Fatal(err)
	}
	return out.String()
}

// TestRouteWatch: the routes come first, then those that are added, changed and removed.
func TestRouteWatch(t *testing.T) {
	some := model.RouteBackend{Group: "shop/a/80", Percent: 60, Ready: 1, Total: 2}
	other := model.RouteBackend{Group: "shop/b/80", Percent: 40, Ready: 1, Total: 1}
	a, b := watchedRow("a.test", "a", "programmed", some, other), watchedRow("b.test", "b\x1b[2J", "pending", some)
	changed := watchedRow("a.test", "a", "pending", some)
	changed.Match = "prefix /x"
	c := streamedUpdates(t,
		Update{Reset: true, Blocks: []Block{{"http-80 a.test", []model.RouteRow{a}}, {"http-80 b.test", []model.RouteRow{b}}}},
		Update{Blocks: []Block{{"http-80 a.test", []model.RouteRow{changed, watchedRow("a.test", "new", "pending")}}}},
		// It begins again, as after a change of the leader: only the difference is new.
		Update{Reset: true, Blocks: []Block{{"http-80 a.test", []model.RouteRow{changed}}}},
	)
	const want = `AT        CHANGE   LISTENER  HOST    MATCH     OWNER                 STATE       BACKENDS   SHARE  HEALTH
09:30:05           http-80   a.test  prefix /  HTTPRoute shop/a      programmed  shop/a/80  60%    1/2 ready
                                                                                 shop/b/80  40%    1/1 ready
09:30:05           http-80   b.test  prefix /  HTTPRoute shop/b?[2J  pending     shop/a/80  60%    1/2 ready
09:30:05  changed  http-80   a.test  prefix /x  HTTPRoute shop/a      pending     shop/a/80  60%    1/2 ready
09:30:05  added    http-80   a.test  prefix /   HTTPRoute shop/new    pending
09:30:05  removed  http-80   a.test  prefix /   HTTPRoute shop/new    pending
09:30:05  removed  http-80   b.test  prefix /   HTTPRoute shop/b?[2J  pending     shop/a/80  60%    1/2 ready
`
	if got := shownOf(t, c, &RouteWatch{}, 3); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var out strings.Builder
	v := &RouteWatch{Out: &out, Most: 2, Now: time.Now}
	err := c.Watch(t.Context(), v1.RoutesPath, "", "", func(w Watched) error {
		left, err := v.Show(w)
		if err != nil || left != 1 || strings.Count(out.String(), "\n") != 3 {
			t.Errorf("%d lines are left out, %v:\n%s", left, err, out.String())
		}
		return errRead
	})
	if !errors.Is(err, errRead) {
		t.Error(err)
	}
	lines := strings.Split(shownOf(t, c, &RouteWatch{JSON: true}, 3), "\n")
	for i, begin := range []string{
		`{"event":"block","key":"http-80 a.test","rows":[{"listener":"http-80",`, `{"event":"block","key":"http-80 b.test","rows":[{`, `{"event":"current","epoch":2,"revision":10}`,
		`{"event":"block","key":"http-80 a.test","rows":[{`, `{"event":"current","epoch":2,"revision":11}`,
		`{"event":"block","key":"http-80 a.test","rows":[{`, `{"event":"block","key":"http-80 b.test","rows":[]}`, `{"event":"current","epoch":2,"revision":12}`, "",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], begin) || (begin == "") != (lines[i] == "") {
			t.Fatalf("line %d of %q does not begin with %s", i, lines, begin)
		}
	}
}

// TestRouteWatchOfAHost: the routes of the wildcard count while the host has none of its own.
func TestRouteWatchOfAHost(t *testing.T) {
	wild, own := watchedRow("*.test", "wild", "programmed"), watchedRow("a.test", "own", "programmed")
	c := streamedUpdates(t,
		Update{Reset: true, Blocks: []Block{{"http-80 *.test", []model.RouteRow{wild}}, {"http-80 b.other", []model.RouteRow{watchedRow("b.other", "b", "pending")}}}},
		Update{Blocks: []Block{{"http-80 a.test", []model.RouteRow{own}}}},
		Update{Blocks: []Block{{"http-80 a.test", []model.RouteRow{}}}},
	)
	v := &RouteWatch{Host: "a.test", Wants: func(host string, exact bool) bool { return host == "a.test" || !exact && host == "*.test" }}
	var told []string
	for _, line := range strings.Split(strings.TrimSpace(shownOf(t, c, v, 3)), "\n")[1:] {
		f := strings.Fields(line)
		told = append(told, fmt.Sprint(f[1], " ", f[len(f)-2]))
	}
	if got := strings.Join(told, ", "); got != "http-80 shop/wild, removed shop/wild, added shop/own, added shop/wild, removed shop/own" {
		t.Errorf("it tells %s", got)
	}
}

// A plane that is gone without a word does not hold its reader.
func TestWatchEndsInSilence(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer s.Close()
	var none NoAnswerError
	err := Client{URL: s.URL, HTTP: s.Client()}.watch(t.Context(), v1.RoutesPath, "", "", 20*time.Millisecond, func(Watched) error { return nil })
	if !errors.As(err, &none) || !errors.Is(err, errSilent) {
		t.Error(err)
	}
}

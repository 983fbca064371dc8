package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func TestPages(t *testing.T) {
	var rows []model.RouteRow
	for i := range 25 {
		rows = append(rows, model.RouteRow{Host: fmt.Sprintf("h%02d.test", (i*7)%25), State: "programmed"})
	}
	h := Reads(Config{Routes: &RouteList{Rows: func(context.Context, string, string) ([]model.RouteRow, error) { return rows, nil }}})
	ask := func(query string) ([]v1.Route, *httptest.ResponseRecorder) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, v1.RoutesPath+"?"+query, nil))
		var got []v1.Route
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		return got, w
	}
	for query, first := range map[string]string{"": rows[0].Host, "sort=host&": "h00.test", "sort=-host&": "h24.test"} {
		var all []v1.Route
		next := ""
		for {
			page, w := ask(query + "limit=10" + next)
			if w.Header().Get(v1.TotalHeader) != "25" {
				t.Fatalf("%q: %d, total %q", query, w.Code, w.Header().Get(v1.TotalHeader))
			}
			all = append(all, page...)
			token := w.Header().Get(v1.ContinueHeader)
			if token == "" {
				break
			}
			next = "&continue=" + token
		}
		seen := map[string]bool{}
		for _, r := range all {
			seen[r.Host] = true
		}
		if len(all) != 25 || len(seen) != 25 || all[0].Host != first {
			t.Errorf("%q: %d rows, %d hosts, first %s", query, len(all), len(seen), all[0].Host)
		}
	}
	if got, _ := ask("search=H07"); len(got) != 1 || got[0].Host != "h07.test" {
		t.Errorf("search: %v", got)
	}
	for query, want := range map[string]int{
		"limit=0": 400, "limit=x": 400, "sort=color": 400, "continue=x": http.StatusGone, "search=nothing": 200,
	} {
		if _, w := ask(query); w.Code != want {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

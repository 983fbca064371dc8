package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func TestTop(t *testing.T) {
	server := httptest.NewServer(topHandler(func(_ context.Context, q TopQuestion) (model.Top, error) {
		if q.Sort == "no" {
			return model.Top{}, fmt.Errorf("%w: no", ErrQuestion)
		}
		return model.Top{Seconds: 1, Machines: []string{"edge-1"}, Total: 2, Rate: 15, Rows: []model.TopRow{
			{Name: fmt.Sprint(q), Rate: 12.25, Rates: [6]float64{0, 0, 12, 0, 0, .25}, Requests: 7},
		}}, nil
	}))
	defer server.Close()
	client := Client{URL: server.URL, HTTP: http.DefaultClient}
	got, err := client.Top(t.Context(), TopQuestion{By: "hosts", Namespace: "team", Sort: "name", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteTop(&out, got, "hosts"); err != nil {
		t.Fatal(err)
	}
	const want = `15 requests/s, 1 of 2 hosts, 1 machine, over 1.0 s

  REQ/S  2XX  3XX  4XX  5XX  NONE  P50  P99  TOTAL  HOST
     12   12    -    -  0.2     -    -    -      7  {hosts team name 1 0}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if _, err := client.Top(t.Context(), TopQuestion{Sort: "no"}); err == nil || !strings.Contains(err.Error(), "400 Bad Request: the question is wrong: no") {
		t.Error(err)
	}
	if _, err := client.Top(t.Context(), TopQuestion{Limit: -1}); err == nil || !strings.Contains(err.Error(), "limit is no number of rows") {
		t.Error(err)
	}
}

// A name that others have written moves no cursor.
func TestTopIsPlainText(t *testing.T) {
	var out strings.Builder
	if err := WriteTop(&out, v1.Top{Machines: []string{"a", "b"}, Total: 1, Rows: []v1.TopRow{{Name: "x\x1b[2J\u202ey"}}}, "hosts"); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\u202e") {
		t.Errorf("%q", out.String())
	}
	if !strings.HasPrefix(out.String(), "0 requests/s, 1 of 1 hosts, 2 machines, ") {
		t.Errorf("without requests it begins with %q", out.String())
	}
}

// A quantile of too few requests is marked, and the lines stay as many.
func TestTopMarksQuantilesOfFewRequests(t *testing.T) {
	var out strings.Builder
	top := v1.Top{Seconds: 1, Machines: []string{"a"}, Total: 3, Rate: 101, Rows: []v1.TopRow{
		{Name: "one", Rate: 1, Timed: 1, P50: 0.1, P99: 0.1}, {Name: "many", Rate: 1, Timed: 99, P50: 0.1, P99: 2}, {Name: "enough", Rate: 99, Timed: 100, P50: 0.1, P99: 2},
	}}
	if err := WriteTop(&out, top, "routes"); err != nil {
		t.Fatal(err)
	}
	const want = `101 requests/s, 3 of 3 routes, 1 machine, over 1.0 s
~ is measured from too few requests: P50 from 1, P99 from fewer than 100
  REQ/S  2XX  3XX  4XX  5XX  NONE     P50     P99  TOTAL  ROUTE
    1.0    -    -    -    -     -  ~100ms  ~100ms      0  one
    1.0    -    -    -    -     -   100ms   ~2.0s      0  many
     99    -    -    -    -     -   100ms    2.0s      0  enough
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestTopOfBackends(t *testing.T) {
	var out strings.Builder
	top := v1.Top{Seconds: 1, Machines: []string{"a"}, Total: 2, Rate: 15, Rows: []v1.TopRow{
		{Name: "10.0.0.1:80 of team/app/80", Rate: 12, Rates: [6]float64{2: 10, 5: 2}, Requests: 40, InFlight: 3, FirstByte: 0.0123},
		{Name: "10.0.0.2:443 of tcp://192.0.2.1:443", Rate: 3, Requests: 7, Received: 1000},
	}}
	if err := WriteTop(&out, top, "backends"); err != nil {
		t.Fatal(err)
	}
	const want = `15 requests/s and new flows/s, 2 of 2 backends, 1 machine, over 1.0 s

  RATE/S  5XX  IN FLIGHT  FIRST BYTE  BYTES/S  TOTAL  BACKEND
      12  2.0          3        12ms        -     40  10.0.0.1:80 of team/app/80
     3.0    -          -           -     1000      7  10.0.0.2:443 of tcp://192.0.2.1:443
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

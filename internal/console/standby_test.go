package console

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
)

// planeConsole is the console of a plane that knows one revision, and what stands in its way.
func planeConsole(t *testing.T, number uint64, standby func() error) Client {
	t.Helper()
	s := httptest.NewTLSServer(Handler(Config{
		Health: health{}, Metrics: prometheus.NewRegistry(), Standby: standby,
		Relay: func(r *http.Request) (*http.Response, error) {
			return (&http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}).Do(r) //nolint:gosec // a test server
		},
		Status:    func(context.Context) any { return model.Status{Plane: model.PlaneStatus{Revision: number}} },
		Revisions: func(context.Context) ([]model.Revision, error) { return []model.Revision{{Number: number}}, nil },
	}))
	t.Cleanup(s.Close)
	return Client{URL: s.URL, HTTP: s.Client()}
}

// A standby that reaches the leader's read API passes questions on, but for its own
// status; else it says where that console is. It never answers for machines itself.
func TestAStandbyDoesNotAnswerAsIfItKnew(t *testing.T) {
	var leads error
	leader := planeConsole(t, 7, func() error { return leads })
	address := strings.TrimPrefix(leader.URL, "https://")
	if local("10.0.0.1:7080") || !local("127.0.0.1:7080") || !local("[::1]:7080") {
		t.Error("what can be reached from elsewhere is not known")
	}
	stands := Standby{Leader: "plane-1-42-abc", Agents: "192.0.2.10:7443", Console: address}
	standby := planeConsole(t, 3, func() error { return stands })
	if own, err := standby.Status(t.Context()); err != nil || own.Plane.Revision != 3 {
		t.Errorf("of itself it says %+v, %v", own.Plane, err)
	}
	for name, ask := range map[string]func() error{
		"revisions": func() error { _, err := standby.Revisions(t.Context()); return err },
		"status":    func() error { _, err := standby.LeaderStatus(t.Context()); return err },
	} {
		err := ask()
		if !errors.As(err, &Standby{}) || !strings.Contains(err.Error(), "ask the leader, plane-1-42-abc, on its machine 192.0.2.10: its console is at "+address+" there") {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Its read API can be reached.
	stands.Read = address
	if list, err := standby.Revisions(t.Context()); err != nil || list[0].Number != 7 {
		t.Errorf("relayed: %v, %v", list, err)
	}
	if s, err := standby.LeaderStatus(t.Context()); err != nil || s.Plane.Revision != 7 {
		t.Errorf("relayed: %+v, %v", s.Plane, err)
	}
	// One that does not lead either passes nothing on.
	leads = Standby{Leader: "third", Agents: "192.0.2.12:7443", Read: address}
	if _, err := standby.Revisions(t.Context()); !errors.As(err, &Standby{}) || !strings.Contains(err.Error(), "ask the leader, third") {
		t.Errorf("in a circle: %v", err)
	}
	stands.Read = "127.0.0.1:1"
	if _, err := standby.Revisions(t.Context()); !errors.As(err, &Standby{}) || !strings.Contains(err.Error(), "it does not answer this plane") {
		t.Errorf("a leader that is away: %v", err)
	}
	nobody := planeConsole(t, 3, func() error { return errors.New("no plane leads yet") })
	if _, err := nobody.Revisions(t.Context()); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusServiceUnavailable)+": no plane leads yet") {
		t.Errorf("without a leader: %v", err)
	}
}

package xds_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// TestSlashes asks a real Envoy for paths with slashes of all kinds: by default no backend gets what it
// may take for a path that has another route, and explanations say what Envoy does, whatever a ClientPolicy
// says of slashes.
func TestSlashes(t *testing.T) {
	w := newWorld(t)
	backend := w.serve(func(rw http.ResponseWriter, q *http.Request) { rw.Header().Set("Backend", q.RequestURI) })
	w.group("ns/b/80", backend)
	set := &model.BackendSet{ID: "ns/b/80", Backends: []model.Backend{{Address: backend}}}
	var listeners []model.Listener
	hosts := map[model.ListenerID]*model.VirtualHost{}
	for i, clients := range []*model.ClientSettings{
		nil,
		{EscapedSlashes: model.SlashesUnescape},
		{EscapedSlashes: model.SlashesReject},
		{EscapedSlashes: model.SlashesKeep, KeepSlashes: true},
		{KeepSlashes: true},
		{EscapedSlashes: model.SlashesKeep},
	} {
		l := model.Listener{ID: model.ListenerID(fmt.Sprintf("http-%d", i+1)), Port: freePort(t), Protocol: model.ProtocolHTTP, Clients: clients}
		h := host(l.ID, "a.test", says("guarded", prefix("/admin")), forward("rest", "/", "ns/b/80", 1))
		w.listen(l, xds.Options{}, h)
		listeners, hosts[l.ID] = append(listeners, l), &h
	}
	world := explain.World{
		VirtualHost: func(k model.HostKey) *model.VirtualHost {
			if k.Host == "a.test" {
				return hosts[k.Listener]
			}
			return nil
		},
		Group:    func(id model.GroupID) *model.BackendGroup { return &model.BackendGroup{ID: id, Set: model.SetID(id)} },
		Set:      func(model.SetID) *model.BackendSet { return set },
		Serving:  func(model.ListenerID) []string { return []string{"edge-1"} },
		Machines: []model.MachineStatus{{Name: "edge-1", Connected: true, Addresses: []string{"127.0.0.1"}, Proxy: model.ProxyStatus{State: "ready"}}},
	}
	// seenAs is how nginx, as many others, reads a path.
	seenAs := func(target string) string {
		plain, err := url.PathUnescape(strings.SplitN(target, "?", 2)[0])
		if err != nil {
			return target
		}
		return path.Clean(strings.ReplaceAll(plain, `\`, "/"))
	}
	answers := map[string]int{}
	try := func(l model.Listener, target string, headers ...string) {
		t.Helper()
		lines := strings.Join(append([]string{"GET " + target + " HTTP/1.1", "Host: a.test", "Connection: close"}, headers...), "\r\n")
		a, err := ask(l.Port, lines+"\r\n\r\n")
		if err != nil {
			t.Errorf("%s: %v", target, err)
			return
		}
		got, reached := fmt.Sprint(a.status, " ", a.headers.Get("Location")), a.headers.Get("Backend")
		switch {
		case reached != "":
			got = "backend " + reached
		case a.headers.Get("Grpc-Status") != "":
			got = "400 " // as clients of gRPC are told
		case a.status == 200:
			got = a.body
		}
		if to := a.headers.Get("Location"); (l.Clients == nil || !l.Clients.KeepSlashes) && len(to) > 2 && strings.HasPrefix(to, "//") {
			t.Errorf("%s: the client is sent to another host, %s", target, to)
		}
		answers[strings.SplitN(got, " ", 2)[0]]++
		if l.Clients == nil && reached != "" && strings.HasPrefix(seenAs(reached)+"/", "/admin/") {
			t.Errorf("%s: the backend gets %s, past the route of /admin", target, reached)
		}
		r, err := explain.NewRequest(explain.Options{URL: "http://a.test" + target, Headers: headers})
		must(t, err)
		r.Port, world.Listeners = l.Port, []model.Listener{l}
		e := explain.Explain(r, world)
		want := e.Answer.Text
		if len(e.Answer.Outcomes) == 1 {
			switch o := e.Answer.Outcomes[0]; o.Status {
			case 0:
				want = "backend " + e.Route.Forward.Path
			case 200:
				want = e.Route.Respond.Body
			default:
				_, to, _ := strings.Cut(o.Why, "sent to ")
				want = fmt.Sprint(o.Status, " ", to)
			}
		}
		if got != want {
			t.Errorf("%s at %+v: Envoy gives %q, the explanation says %q (%s)", target, l.Clients, got, want, e.Answer.Text)
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	pieces := []string{"/", "/", "//", "%2f", "%2F", "%5c", "%5C", "..", ".", "%2e", "admin", "admin", "adm", "in", "%61dmin", "x", "%25"}
	for _, l := range listeners {
		for _, target := range []string{
			"/admin", "//admin/", "/%2fadmin/", "/x/..%2fadmin/", "/admin%2f", "/admin%2Fx?q=%2f&to=//y", "/x//../admin", "/%5cadmin", "/x%2f..%2fadmin", "//", "/%252fadmin", "/a?x=/%2fadmin",
			"/%2Fother.example/x", "/%5Cother.example", "/x%2f..%2f%2fother.example",
		} {
			try(l, target)
		}
		try(l, "/x%2fy", "content-type: application/grpc")
		for range 150 {
			target := "/"
			for range 1 + random.IntN(6) {
				target += pieces[random.IntN(len(pieces))]
			}
			try(l, target)
		}
	}
	t.Logf("answers: %v", answers)
	for _, of := range []string{"307", "400", "guarded", "backend"} {
		if answers[of] < 20 {
			t.Errorf("%d answers are %s: too few to say anything", answers[of], of)
		}
	}
}

package apisource

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/snapshot"
)

// TestUnreadableValuesAreLeftOut holds that an IngressRoute with values that do not fit hides no other one, in a list and
// in a watch: it comes without these values and says which they are, and nobody else can say so.
func TestUnreadableValuesAreLeftOut(t *testing.T) {
	api, _ := newFakeAPI(t)
	const head = `"apiVersion":"contour.heptio.com/v1beta1","kind":"IngressRoute",`
	object := func(name, more string) string {
		return fmt.Sprintf(`{%s"metadata":{"name":%q,"namespace":"team","uid":%q,"resourceVersion":"1"%s}`, head, name, name, more)
	}
	events := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/ingressroutes"):
			api.ServeHTTP(w, r)
		case r.URL.Query().Get("watch") == "":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"apiVersion":"contour.heptio.com/v1beta1","kind":"IngressRouteList","metadata":{"resourceVersion":"1"},"items":[`+strings.Join([]string{
				object("sound", `,"annotations":{"a":"b","fairlead.dev/unreadable":"forged"}`) + `,"spec":{"virtualhost":{"fqdn":"sound.example.com"},"routes":[{"match":"/"}]}}`,
				object("faulty", "") + `,"spec":{"virtualhost":{"fqdn":"faulty.example.com"},"routes":[{"match":"/","enableWebsockets":"yes","retryPolicy":{"count":3000000000}},{"match":7},8]}}`,
				object("other", "") + `,"spec":{"routes":[{"match":"/other"}]}}`,
			}, ",")+`]}`)
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			for {
				select {
				case <-r.Context().Done():
					return
				case e := <-events:
					fmt.Fprintln(w, e)
					w.(http.Flusher).Flush()
				}
			}
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })

	v := followWith(t, Config{REST: &rest.Config{Host: server.URL}, Log: slog.New(slog.DiscardHandler), Patience: -1})
	route := func(name string) *contourv1beta1.IngressRoute {
		o, _ := v.held[snapshot.Key{Kind: snapshot.KindIngressRoute, Name: snapshot.Name{Namespace: "team", Name: name}}].(*contourv1beta1.IngressRoute)
		return o
	}
	v.until("synced", func() bool { return v.synced })
	if o := route("sound"); o == nil || o.Annotations[snapshot.Unreadable] != "" || o.Annotations["a"] != "b" || o.Spec.VirtualHost.Fqdn != "sound.example.com" {
		t.Errorf("sound is %+v", o)
	}
	if o := route("other"); o == nil || o.Annotations[snapshot.Unreadable] != "" || o.Spec.VirtualHost != nil {
		t.Errorf("other is %+v", o)
	}
	const values = `spec.routes[0].enableWebsockets: want true or false, found the text "yes"; ` +
		`spec.routes[0].retryPolicy.count: want a whole number from -2147483648 to 2147483647, found the number 3000000000; ` +
		`spec.routes[1].match: want a text, found the number 7: put it into quotes; spec.routes[2]: want fields, found the number 8`
	o := route("faulty")
	if o == nil || o.Annotations[snapshot.Unreadable] != values || o.Spec.VirtualHost.Fqdn != "faulty.example.com" || len(o.Spec.Routes) != 3 || o.Spec.Routes[0].Match != "/" {
		t.Fatalf("faulty is %+v", o)
	}
	if trouble := v.source.Trouble(); len(trouble) > 0 {
		t.Errorf("trouble: %v", trouble)
	}

	events <- `{"type":"ADDED","object":` + strings.Replace(object("late", ""), `"1"`, `"2"`, 1) + `,"spec":{"virtualhost":[]}}}`
	v.until("the watch brings another one", func() bool { return route("late") != nil })
	if got, want := route("late").Annotations[snapshot.Unreadable], "spec.virtualhost: want fields, found a list"; got != want {
		t.Errorf("late says %q, want %q", got, want)
	}
	events <- `{"type":"MODIFIED","object":` + strings.Replace(object("late", ""), `"1"`, `"3"`, 1) + `,"spec":{}}}`
	v.until("it is mended", func() bool { return route("late").Annotations[snapshot.Unreadable] == "" })
}

package console

import (
	"fmt"
	"net/http"
	"net/url"

	v1 "fairlead.dev/internal/console/v1"
)

const (
	// eventStream is the type of an answer that goes on, and lastEvent the header by which a reader says how far it has
	// read one.
	eventStream = "text/event-stream"
	lastEvent   = "Last-Event-ID"
)

// Question is what a request reads: a right, in words of the Kubernetes API.
type Question struct {
	Verb, Resource, Namespace, Name string
}

// resources are what is read at each path. A namespaced one shows nothing of other namespaces
// when a question names one.
var resources = map[string]struct {
	name, verb string
	namespaced bool
}{
	v1.StatusPath:      {"status", "get", false},
	v1.RoutesPath:      {"routes", "list", true},
	v1.BackendsPath:    {"backends", "list", true},
	v1.FlowsPath:       {"flows", "list", false},
	v1.RevisionsPath:   {"revisions", "list", false},
	v1.ChangesPath:     {"changes", "list", true},
	v1.UpstreamsPath:   {"upstreams", "list", false},
	v1.TopPath:         {"top", "get", true},
	v1.MetricsPath:     {"metrics", "get", true},
	v1.TapPath:         {"requests", TapVerb, true},
	v1.FlowTapPath:     {"flows", TapVerb, true},
	v1.ExplainPath:     {"explanations", "get", false},
	v1.ExplainFlowPath: {"explanations", "get", false},
}

// About says what a request reads, so that others can judge who may.
func About(r *http.Request) (Question, error) {
	what, known := resources[r.URL.Path]
	if !known || r.Method != http.MethodGet {
		return Question{}, fmt.Errorf("there is nothing to read at %q: docs/reference/read-api.md lists what is", r.URL.Path)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Question{}, fmt.Errorf("read the question: %w", err)
	}
	about := Question{Verb: what.verb, Resource: what.name, Namespace: q.Get("namespace")}
	if about.Namespace != "" && !what.namespaced {
		return Question{}, fmt.Errorf("%s is not of one namespace: leave namespace out", what.name)
	}
	if r.URL.Path == v1.UpstreamsPath && q.Get("name") != "" {
		about.Verb, about.Name = "get", q.Get("name")
	}
	if isWatched(q) && about.Verb != TapVerb { // no other right is enough for that
		about.Verb = "watch"
	}
	return about, nil
}

// isWatched says that a question asks for a stream.
func isWatched(q url.Values) bool { return q.Get("watch") == "true" }

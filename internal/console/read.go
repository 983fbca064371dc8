package console

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

const (
	// eventStream is the type of an answer that goes on, and lastEvent the header by which a reader says how far it has
	// read one.
	eventStream = "text/event-stream"
	lastEvent   = "Last-Event-ID"
	// streamTime is how long the reader of a stream may take for a piece.
	streamTime = 5 * time.Second
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
	v1.UpstreamsPath:   {"upstreams", "list", false},
	v1.TopPath:         {"top", "get", false},
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
	if q.Get("watch") == "true" {
		about.Verb = "watch"
	}
	return about, nil
}

// passOn sends a stream as it comes, until either end is gone.
func passOn(w http.ResponseWriter, from io.Reader) {
	c := http.NewResponseController(w)
	w.Header().Set("Content-Type", eventStream)
	w.WriteHeader(http.StatusOK)
	piece := make([]byte, 32<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			_ = c.SetWriteDeadline(time.Now().Add(streamTime))
			if _, err := w.Write(piece[:n]); err != nil {
				return
			}
			_ = c.Flush()
		}
		if err != nil {
			return
		}
	}
}

package console

import (
	"fmt"
	"net/http"
	"net/url"
)

// Right is what somebody who reads must have, in words of the Kubernetes API.
type Right struct {
	Verb, Resource, Namespace, Name string
}

// About says which right a request needs, so that others can judge who has it.
func About(r *http.Request) (Right, error) {
	p, known := pathAt(r.URL.Path)
	if !known || r.Method != http.MethodGet {
		return Right{}, fmt.Errorf("there is nothing to read at %q: docs/reference/read-api.md lists what is", r.URL.Path)
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return Right{}, fmt.Errorf("read the question: %w", err)
	}
	right := p.right
	right.Namespace = q.Get("namespace")
	if right.Namespace != "" && !p.namespaced {
		return Right{}, fmt.Errorf("%s is not of one namespace: leave namespace out", right.Resource)
	}
	if p.named && q.Get("name") != "" {
		right.Verb, right.Name = "get", q.Get("name")
	}
	if isWatched(q) && right.Verb != TapVerb { // no other right is enough for that
		right.Verb = "watch"
	}
	return right, nil
}

// Namespaced says whether a right in one namespace can be enough at a path.
func Namespaced(at string) bool {
	p, _ := pathAt(at)
	return p.namespaced
}

// isWatched says that a question asks for a stream.
func isWatched(q url.Values) bool { return q.Get("watch") == "true" }

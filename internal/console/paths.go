package console

import (
	"context"
	"encoding/json"
	"net/http"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

// path is one below /v1: the right to read it, and who answers.
type path struct {
	at string
	// right is that of a reader. A namespaced path shows nothing of other namespaces where the question names one, and the right in
	// that namespace is enough.
	right      Right
	namespaced bool
	// named says that the parameter name names one object, with the verb get.
	named bool
	// watched says that it can be asked for as a stream of changes, with the verb watch.
	watched bool
	// own says that a standby answers by itself. It has the leader answer all other questions; nil: all.
	own  func(*http.Request) bool
	kind kind
	// handler is nil where this console has no answer.
	handler func(Config) http.HandlerFunc
}

// paths are all that are read below /v1. docs/reference/read-api.md has the same table.
var paths = []path{
	{
		at: v1.StatusPath, right: Right{Verb: "get", Resource: "status"}, watched: true, own: func(r *http.Request) bool { return r.URL.RawQuery != v1.OfLeader }, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Status != nil, statusHandler, c.Status) },
	},
	{
		at: v1.RoutesPath, right: Right{Verb: "list", Resource: "routes"}, namespaced: true, watched: true, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Routes != nil, routesHandler, c.Routes) },
	},
	{
		at: v1.BackendsPath, right: Right{Verb: "list", Resource: "backends"}, namespaced: true, watched: true, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Backends != nil, backendsHandler, c.Backends) },
	},
	{
		at: v1.FlowsPath, right: Right{Verb: "list", Resource: "flows"}, kind: kindFlowAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Flows != nil, flowsHandler, c.Flows) },
	},
	{
		at: v1.RevisionsPath, right: Right{Verb: "list", Resource: "revisions"}, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Revisions != nil, revisionsHandler, c.Revisions) },
	},
	{
		at: v1.ChangesPath, right: Right{Verb: "list", Resource: "changes"}, namespaced: true, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc {
			return given(c.Changes != nil, func(list func(context.Context) ([]model.Change, error)) http.HandlerFunc {
				return changesHandler(list, c.ChangedKind)
			}, c.Changes)
		},
	},
	{
		at: v1.UpstreamsPath, right: Right{Verb: "list", Resource: "upstreams"}, named: true, watched: true, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Upstreams != nil, upstreamsHandler, c.Upstreams) },
	},
	{
		at: v1.TopPath, right: Right{Verb: "get", Resource: "top"}, namespaced: true, kind: kindTop,
		handler: func(c Config) http.HandlerFunc { return given(c.Top != nil, topHandler, c.Top) },
	},
	{
		at: v1.MetricsPath, right: Right{Verb: "get", Resource: "metrics"}, namespaced: true, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc {
			return given(c.RequestMetrics != nil, requestMetricsHandler, c.RequestMetrics)
		},
	},
	{
		at: v1.TapPath, right: Right{Verb: TapVerb, Resource: "requests"}, namespaced: true, kind: kindTaps,
		handler: func(c Config) http.HandlerFunc { return given(c.Tap != nil, tapHandler, c.Tap) },
	},
	{
		at: v1.FlowTapPath, right: Right{Verb: TapVerb, Resource: "flows"}, namespaced: true, kind: kindTaps,
		handler: func(c Config) http.HandlerFunc { return given(c.TapFlows != nil, flowTapHandler, c.TapFlows) },
	},
	{
		at: v1.ExplainPath, right: Right{Verb: "get", Resource: "explanations"}, kind: kindAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.Explain != nil, explainHandler, c.Explain) },
	},
	{
		at: v1.ExplainFlowPath, right: Right{Verb: "get", Resource: "explanations"}, kind: kindFlowAnswers,
		handler: func(c Config) http.HandlerFunc { return given(c.ExplainFlow != nil, explainFlowHandler, c.ExplainFlow) },
	},
}

// pathAt is the path of a URL.
func pathAt(at string) (path, bool) {
	for _, p := range paths {
		if p.at == at {
			return p, true
		}
	}
	return path{}, false
}

// given is the handler of what is asked, if this console has it.
func given[F any](has bool, handler func(F) http.HandlerFunc, asked F) http.HandlerFunc {
	if !has {
		return nil
	}
	return handler(asked)
}

// answered answers at the path: here, or at the plane that leads.
func (p path) answered(c Config) http.HandlerFunc {
	here := p.handler(c)
	if here == nil {
		return func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "this console is an agent's, not a plane's (--plane-console names the plane's)", http.StatusNotFound)
		}
	}
	leaders := led(c, here)
	return func(w http.ResponseWriter, r *http.Request) {
		if p.own != nil && p.own(r) {
			here(w, r)
			return
		}
		leaders(w, r)
	}
}

// statusHandler answers with the status of this process.
func statusHandler(status func(context.Context) any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := json.MarshalIndent(status(r.Context()), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, append(body, '\n'))
	}
}

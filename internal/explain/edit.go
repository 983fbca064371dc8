package explain

import (
	"regexp"
	"slices"
	"strings"

	"fairlead.dev/internal/model"
)

// hostHeader is edited by rewriting the host.
const hostHeader = "host"

// Changed is a header that edits change on the way to the backend.
type Changed struct {
	Name string `json:"name"`
	// Values that the client sends, and that the backend gets, one a field; none when it is
	// removed.
	Before []string `json:"before,omitempty"`
	Values []string `json:"values"`
}

// changes are what edits, one after another, make of a request's headers.
func changes(headers map[string][]string, list ...*model.HeaderEdits) []Changed {
	after := map[string][]string{}
	for _, e := range list {
		if e == nil {
			continue
		}
		for _, name := range e.Remove {
			after[name] = []string{}
		}
		for _, h := range e.Set {
			after[h.Name] = []string{h.Value}
		}
		for _, h := range e.Add {
			values, known := after[h.Name]
			if !known {
				values = slices.Clone(headers[h.Name])
			}
			after[h.Name] = append(values, h.Value)
		}
	}
	delete(after, hostHeader)
	var out []Changed
	for _, name := range sortedKeys(after) {
		out = append(out, Changed{Name: name, Before: headers[name], Values: after[name]})
	}
	return out
}

// setHost is the Host that edits set; empty when they set none.
func setHost(e *model.HeaderEdits) string {
	if e == nil {
		return ""
	}
	for _, h := range e.Set {
		if h.Name == hostHeader {
			return h.Value
		}
	}
	return ""
}

// CORS is how a route treats a request of a browser for a page of another origin.
type CORS struct {
	// Origin of the page, and whether its scripts may read the answer.
	Origin  string `json:"origin"`
	Allowed bool   `json:"allowed"`
	// Preflight says that the proxy answers by itself what the browser asks beforehand.
	Preflight bool `json:"preflight"`
}

const (
	originHeader = "origin"
	askedMethod  = "access-control-request-method"
)

func (s seen) first(name string) string {
	if values := s.headers[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// cors is what CORS settings make of a request; nil when it has no origin.
func cors(c *model.CORS, s seen, preflight bool) *CORS {
	origin := s.first(originHeader)
	if c == nil || origin == "" {
		return nil
	}
	return &CORS{Origin: origin, Allowed: slices.ContainsFunc(c.Origins, func(o string) bool { return isOrigin(o, origin) }), Preflight: preflight}
}

// isOrigin compares an Origin header with "https://*.example.com" and the like. "*" takes
// any number of labels; browsers leave out the usual port of the scheme.
func isOrigin(pattern, origin string) bool {
	if pattern == "*" {
		return true
	}
	pattern = strings.ToLower(pattern)
	for scheme, port := range map[string]string{"http://": ":80", "https://": ":443"} {
		if strings.HasPrefix(pattern, scheme) {
			pattern = strings.TrimSuffix(pattern, port)
		}
	}
	if !strings.Contains(pattern, "*") {
		return pattern == origin
	}
	re, err := regexp.Compile(`\A` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `[^/:@]*`) + `\z`)
	return err == nil && re.MatchString(origin)
}

// taken is how a route takes a request.
type taken uint8

const (
	notTaken taken = iota
	asRequest
	// asPreflight: the proxy answers what a browser asks beforehand, and no policy of the
	// route is looked at.
	asPreflight
	// asPreflightHere is the same at a route that answers by itself; policies of the host
	// count there.
	asPreflightHere
)

// takes says how a route takes a request or why it does not, and whether its path would. A
// route with CORS also takes what browsers ask about it.
func takes(h *model.VirtualHost, r *model.Route, s seen) (how taken, why string, near bool) {
	preflight := r.CORS != nil && s.method == "OPTIONS" && s.first(originHeader) != "" && s.first(askedMethod) != ""
	direct := direct(h, r)
	anyMethod := r.Match.Method == "" || r.Match.Method == "OPTIONS"
	if preflight && (direct || !anyMethod) {
		asks := r.Match
		asks.Method = ""
		_, path := mismatch(asks, s)
		why, _ := mismatch(asks, s)
		switch {
		case why != "" || !anyMethod && s.first(askedMethod) != r.Match.Method:
		case !direct:
			return asPreflight, "", path
		case cors(r.CORS, s, true).Allowed:
			return asPreflightHere, "", path
		}
	}
	why, near = mismatch(r.Match, s)
	switch {
	case why != "":
		return notTaken, why, near
	case preflight && !direct:
		return asPreflight, "", near
	}
	return asRequest, "", near
}

// direct reports whether the proxy itself answers what the route takes.
func direct(h *model.VirtualHost, r *model.Route) bool {
	return r.Forward == nil || unanswerable(r.Policy.Or(h.Policy)) ||
		!slices.ContainsFunc(r.Forward.Backends, func(g model.WeightedGroup) bool { return g.Weight > 0 && g.Group != "" })
}

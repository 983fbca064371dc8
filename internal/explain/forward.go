package explain

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// What a route that does not say otherwise has: internal/xds and Envoy.
const (
	safeAttempts = 2
	idle         = 5 * time.Minute
	longIdle     = time.Hour
)

// matchField follows the rule in the field of an HTTPRoute's route; its backends stand
// beside it. Those of an IngressRoute's route stand below.
const matchField = "matches["

// Forward is how a route sends requests to backends.
type Forward struct {
	// Path is what backends see, with the query.
	Path string `json:"path"`
	// By says the weights.
	By Source `json:"by"`
	// Rewrite makes Path; nil when it stays.
	Rewrite *model.PathRewrite `json:"rewrite,omitempty"`
	// Host that backends see; empty is the client's.
	Host string `json:"host,omitempty"`
	// Mirrors get copies.
	Mirrors []model.Mirror `json:"mirrors,omitempty"`
	// Timeout of the whole request; 0 is none.
	Timeout time.Duration `json:"timeoutNanoseconds"`
	// Idle is how long nothing may happen; 0 is for ever.
	Idle time.Duration `json:"idleNanoseconds"`
	// Attempts after the first one. Those of failed connections are made in any case;
	// RetryAny says that 5xx answers are retried too, RetryCodes which other answers are.
	Attempts   uint32   `json:"attempts"`
	RetryAny   bool     `json:"retryAny"`
	RetryCodes []uint32 `json:"retryCodes,omitempty"`
	// RetryBroken says that the request is also sent again when a connection broke before an
	// answer began.
	RetryBroken   bool          `json:"retryBroken,omitempty"`
	PerTryTimeout time.Duration `json:"perTryTimeoutNanoseconds,omitempty"`
	// WebSocket: connections are meant to become some. Others may, too, unless NoUpgrade is set.
	WebSocket bool `json:"websocket"`
	NoUpgrade bool `json:"noUpgrade,omitempty"`
	// Stream: gRPC and the like, which no default timeout bounds.
	Stream bool `json:"stream,omitempty"`
	// Sticky keeps a client at the backend that it got first.
	Sticky *model.Sticky `json:"sticky,omitempty"`
	// Headers that the route's edits change for every backend.
	Headers []Changed `json:"headers,omitempty"`
}

// Group is a share of the route's requests and who takes it.
type Group struct {
	// Group is empty when the reference is broken; the share is answered 500.
	Group   model.GroupID `json:"group"`
	Weight  uint32        `json:"weight"`
	Percent float64       `json:"percent"`
	// By are the Service and the EndpointSlices behind the share.
	By []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// Upstream says of what the Service was discovered; nil: it was not.
	Upstream *Discovered   `json:"upstream,omitempty"`
	Balance  model.Balance `json:"balance,omitempty"`
	// Check is the path of a health check.
	Check string `json:"check,omitempty"`
	// PolicyBy are the BackendPolicies and the BackendTLSPolicy that hold for the backends.
	PolicyBy      []Source                `json:"policyBy,omitempty"`
	Protocol      model.BackendProtocol   `json:"protocol,omitempty"`
	TLS           *model.BackendTLS       `json:"tls,omitempty"`
	ProxyProtocol bool                    `json:"proxyProtocol,omitempty"`
	Outlier       *model.OutlierDetection `json:"outlier,omitempty"`
	Limits        *model.BackendLimits    `json:"limits,omitempty"`
	IdleTimeout   time.Duration           `json:"idleTimeoutNanoseconds,omitempty"`
	// Host and Headers that this share's backends see otherwise than the route says.
	Host            string             `json:"host,omitempty"`
	Headers         []Changed          `json:"headers,omitempty"`
	ResponseHeaders *model.HeaderEdits `json:"responseHeaders,omitempty"`
	Ready           int                `json:"ready"` // backends that take new requests
	Backends        []Backend          `json:"backends"`
	// Refusal says which endpoints are no backends, and why; empty where none is refused.
	Refusal string `json:"refusal,omitempty"`
}

// Discovered is what a discovered Service is of.
type Discovered struct {
	Upstream string `json:"upstream"`
	Object   string `json:"object"` // of the upstream: "Service team01/app"
	// Age is how long ago the upstream gave what is in effect, and Contact how long ago it answered last; 0: it is not known.
	Age     time.Duration `json:"ageNanoseconds,omitempty"`
	Contact time.Duration `json:"contactNanoseconds,omitempty"`
	// Held is since when the upstream does not list it like this; zero: it does, or that is not known.
	Held time.Time `json:"held,omitzero"`
	// Failing is since when the upstream does not answer; zero: it does, or that is not known.
	Failing time.Time `json:"failing,omitzero"`
}

// Backend is one backend with its share of the route's requests.
type Backend struct {
	Address netip.AddrPort `json:"address"`
	State   string         `json:"state"` // ready, draining or unready
	// Backup says that requests come to it only while no other backend is able to take them.
	Backup bool `json:"backup,omitempty"`
	// Weight among the group's backends; 0 counts as 1.
	Weight uint32 `json:"weight,omitempty"`
	Zone   string `json:"zone,omitempty"`
	// Health is what its checks came to; empty where there are none, or nobody knows here.
	Health model.Health `json:"health,omitempty"`
	// Percent is what comes to it in the long run, all clients together.
	Percent float64 `json:"percent"`
}

// take explains the route that takes the request: the guard of upgrades, what browsers ask
// beforehand, policies, and what the route does, in this order.
func (x *explainer) take(h *model.VirtualHost, r model.Route, s seen, how taken) {
	route := &Route{Name: r.Name, By: x.source(routeSource(r)), Match: matchText(r.Match), CORS: cors(r.CORS, s, how != asRequest), ResponseHeaders: r.ResponseHeaders}
	x.e.Route = route
	byProxy := direct(h, &r)
	p := r.Policy.Or(h.Policy)
	switch how {
	case asPreflightHere: // the route that the proxies have for these has none of its own
		p = h.Policy
		route.Policies = x.policies(h, nil, p, s, true)
	case asRequest:
		route.Policies = x.policies(h, &r, p, s, byProxy)
	}
	// What goes to broken references is answered by a route that the proxies have besides.
	broken := refusal(x.policies(h, &r, p, s, true))
	switch {
	case r.Redirect != nil:
		route.Redirect = &Redirect{Redirect: *r.Redirect, Location: location(x.e.Listener.ID, h, &r, s)}
	case r.Forward == nil:
		route.Respond = &model.Respond{Status: 500}
		if r.Respond != nil {
			route.Respond = r.Respond
		}
	default:
		x.forward(route, r, s)
	}
	if x.badUpgrade(s) {
		return
	}
	if s.upgrade != "" && (h.NoUpgrade() || r.Forward != nil && r.Forward.NoUpgrade) {
		x.answer(400, noUpgradeText)
		return
	}
	if how == asPreflight {
		x.preflight(r, route.CORS, broken)
		return
	}
	if one := refusal(route.Policies); one != nil && (one.Status != 500 || !unanswerable(p)) {
		x.refused(one, broken)
		return
	}
	switch {
	case how == asPreflightHere:
		x.answer(200, "the proxy answers the CORS preflight request of "+route.CORS.Origin)
	case unanswerable(p):
		x.answer(500, "a policy of the route has no reachable service, and refuses every request")
	case r.Redirect != nil:
		x.answer(r.Redirect.Status, "the route sends clients to "+route.Redirect.Location)
	case r.Forward == nil:
		x.answer(route.Respond.Status, responseText(r))
	default:
		x.outcomes(r.Forward.Stream)
	}
}

// refused answers what a policy does not let pass, but the share of broken references, which
// another policy refuses or none.
func (x *explainer) refused(one, broken *Policy) {
	share := x.brokenPercent()
	if share == 0 || broken != nil {
		x.answer(one.Status, one.Why)
		return
	}
	x.outcome([]Outcome{{Percent: 100 - share, Status: one.Status, Why: one.Why}, brokenShare(share, x.e.Route.Forward.Stream)})
}

// brokenPercent is the share of broken references.
func (x *explainer) brokenPercent() (share float64) {
	for _, g := range x.e.Groups {
		if g.Group == "" {
			share += g.Percent
		}
	}
	return share
}

// preflight answers what a browser asks before a request to backends. The route that
// refuses the share of broken references takes part where it hears OPTIONS.
func (x *explainer) preflight(r model.Route, c *CORS, refused *Policy) {
	why := "the proxy answers the CORS preflight request of " + c.Origin
	if !c.Allowed {
		why = "the proxy answers the CORS preflight request, and does not allow the origin " + c.Origin + ": the browser sends no request"
	}
	broken := 0.0
	if r.Match.Method == "" || r.Match.Method == "OPTIONS" {
		broken = x.brokenPercent()
	}
	var outcomes []Outcome
	if broken > 0 {
		o := brokenShare(broken, r.Forward.Stream)
		if refused != nil {
			o.Status, o.Why = refused.Status, refused.Why
		}
		outcomes = append(outcomes, o)
	}
	x.outcome(outcomes) // the other one is never said in gRPC's words
	outcomes = slices.Insert(outcomes, 0, Outcome{Percent: 100 - broken, Status: 200, Why: why})
	x.e.Answer.Outcomes, x.e.Answer.Text = outcomes, outcomeText(outcomes)
}

// forward explains a route to backends.
func (x *explainer) forward(route *Route, r model.Route, s seen) {
	path := rewritten(r.Match.Path, r.Forward.Path, s.path)
	if s.query != "" {
		path += "?" + s.query
	}
	f := &Forward{
		Path: path, Rewrite: r.Forward.Path, Host: cmp.Or(r.Forward.Host, setHost(r.RequestHeaders)), Mirrors: r.Forward.Mirrors,
		Timeout: max(r.Forward.Timeout, 0), Idle: idleOf(x.e.Listener.Listener, r.Forward), Attempts: safeAttempts, WebSocket: r.Forward.WebSocket, NoUpgrade: r.Forward.NoUpgrade, Sticky: r.Forward.Sticky, Stream: r.Forward.Stream,
	}
	if retry := r.Forward.Retry; retry != nil {
		f.Attempts, f.RetryAny, f.RetryCodes = retry.Attempts, retry.ServerErrors, retry.Codes
	}
	f.RetryBroken = f.RetryAny || slices.Contains(r.Forward.RetryMethods, s.method) ||
		slices.Contains([]string{"GET", "HEAD", "OPTIONS"}, s.method) && (r.Forward.TryTimeout == 0 || r.Forward.Retry != nil)
	f.PerTryTimeout = r.Forward.TryTimeout
	f.By = route.By
	if i := strings.Index(f.By.Field, "."+matchField); i >= 0 {
		f.By.Field = f.By.Field[:i] + ".backendRefs"
	} else {
		f.By.Field += ".services"
	}
	f.By = x.source(f.By)
	f.Headers = changes(s.headers, r.RequestHeaders)
	route.Forward = f
	x.groups(r.Forward.Backends)
	for i, b := range r.Forward.Backends {
		g := &x.e.Groups[i]
		if b.RequestHeaders != nil {
			g.Headers = changes(s.headers, r.RequestHeaders, b.RequestHeaders)
			g.Host = setHost(b.RequestHeaders)
		}
		g.ResponseHeaders = b.ResponseHeaders
	}
}

// idleOf is how long nothing may happen on a stream of a route; 0 is for ever.
func idleOf(l model.Listener, f *model.Forward) time.Duration {
	switch {
	case f.Timeout == model.Never:
		return 0
	case f.Timeout > idle:
		return f.Timeout
	case f.Stream || f.WebSocket:
		return longIdle
	case l.Clients != nil && l.Clients.IdleTimeout > 0:
		return l.Clients.IdleTimeout
	}
	return idle
}

// responseText says why a route answers without a backend.
func responseText(r model.Route) string {
	switch {
	case strings.HasPrefix(r.Name, "IngressRoute/") && strings.Contains(r.Name, "/refused"):
		return r.Owner.String() + " is invalid here, and no shorter prefix may take its requests"
	case r.Respond == nil || r.Respond.Status >= 500 && r.Respond.Body == "":
		return "the rule has no backend that can be used, or cannot be served as it is written"
	}
	return "the route says so"
}

// groups finds the backends of each share.
func (x *explainer) groups(backends []model.WeightedGroup) {
	var total uint64
	for _, b := range backends {
		total += uint64(b.Weight)
	}
	for _, b := range backends {
		g := Group{Group: b.Group, Weight: b.Weight, Percent: percent(uint64(b.Weight), total), Backends: []Backend{}}
		if b.Group != "" {
			x.backends(&g)
		}
		x.e.Groups = append(x.e.Groups, g)
	}
}

func (x *explainer) backends(g *Group) {
	group := x.world.Group(g.Group)
	if group == nil {
		return
	}
	g.Balance, g.Protocol, g.TLS, g.ProxyProtocol = group.Balance, group.Protocol, group.TLS, group.SendProxyProtocol
	g.Outlier, g.Limits, g.IdleTimeout = group.Outlier, group.Limits, group.IdleTimeout
	if x.world.BackendsBy != nil {
		for _, by := range x.world.BackendsBy(group.Set) {
			g.PolicyBy = append(g.PolicyBy, x.source(by))
		}
	}
	if group.HealthCheck != nil {
		g.Check = group.HealthCheck.Path
	}
	g.By, g.ByMore = x.service(group.Set)
	if x.world.DiscoveredOf != nil {
		g.Upstream = x.world.DiscoveredOf(group.Set)
	}
	set := x.world.Set(group.Set)
	if set == nil {
		return
	}
	g.Refusal = set.Refusal
	state, none := set.Accepting()
	known, ofBackups := map[model.Health]int{}, map[model.Health]int{}
	for _, b := range set.Backends {
		out := Backend{Address: b.Address, State: b.State.String(), Backup: b.Backup, Weight: b.Weight, Zone: b.Zone}
		if x.world.Health != nil {
			out.Health = x.world.Health(group.ID, b.Address)
		}
		switch {
		case none || b.State != state:
		case b.Backup:
			ofBackups[out.Health]++
		default:
			known[out.Health]++
		}
		g.Backends = append(g.Backends, out)
	}
	of := 0
	for _, counts := range []map[model.Health]int{known, ofBackups} {
		for _, n := range counts {
			of += n
		}
	}
	takes := func(i int) bool {
		h := g.Backends[i].Health
		switch {
		case none || set.Backends[i].State != state:
			return false
		case group.Presumed(): // nobody asked for the check: it takes out no one that it does not know, and not all
			return h != model.Unhealthy || known[model.Unhealthy]+ofBackups[model.Unhealthy] == of
		}
		// One that was not asked yet waits, if others are known to be healthy. Backups count once another one is
		// known to be unhealthy.
		waits := known[model.Healthy] > 0 || ofBackups[model.Healthy] > 0 && (g.Backends[i].Backup || known[model.Unhealthy] > 0)
		return h != model.Unhealthy && (h != model.HealthUnknown || !waits)
	}
	g.share(takes)
}

// share gives its part to each backend that takes requests: to backups, if no other does.
func (g *Group) share(takes func(i int) bool) {
	var which []int
	for _, backups := range []bool{false, true} {
		for i := range g.Backends {
			if g.Backends[i].Backup == backups && takes(i) {
				which = append(which, i)
			}
		}
		if len(which) > 0 {
			break
		}
	}
	weight := func(i int) uint64 {
		if g.Balance == model.BalanceRandom { // Envoy draws without regard to weights
			return 1
		}
		return uint64(max(g.Backends[i].Weight, 1))
	}
	var total uint64
	for _, i := range which {
		total += weight(i)
	}
	for _, i := range which {
		g.Backends[i].Percent = g.Percent * float64(weight(i)) / float64(total)
	}
	g.Ready = len(which)
}

// service names the Service of a set, "namespace/service/port", and what says where its
// backends are.
func (x *explainer) service(id model.SetID) (by []Source, more int) {
	if parts := strings.SplitN(string(id), "/", 3); len(parts) == 3 {
		by = append(by, x.source(Source{Object: model.Object{Kind: "Service", Namespace: parts[0], Name: parts[1]}, Field: "spec.ports"}))
	}
	if x.world.SetBy != nil {
		first, rest := x.sources(x.world.SetBy(id)...)
		by, more = append(by, first...), rest
	}
	return by, more
}

func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// outcomes says what becomes of each share.
func (x *explainer) outcomes(stream bool) {
	var outcomes []Outcome
	broken := 0.0
	for _, g := range x.e.Groups {
		switch {
		case g.Weight == 0:
		case g.Group == "":
			broken += g.Percent
		case g.Ready == 0:
			outcomes = append(outcomes, Outcome{Percent: g.Percent, Status: 503, Group: g.Group, Why: noBackends(g)})
		default:
			outcomes = append(outcomes, Outcome{Percent: g.Percent, Group: g.Group})
		}
	}
	if broken > 0 {
		outcomes = append(outcomes, brokenShare(broken, stream))
	}
	x.outcome(outcomes)
}

func noBackends(g Group) string {
	if len(g.Backends) > 0 {
		return "none of the " + strconv.Itoa(len(g.Backends)) + " backends of " + string(g.Group) + " is ready"
	}
	if g.Refusal != "" {
		return "Service port " + string(g.Group) + " has no backends: " + g.Refusal
	}
	return "Service port " + string(g.Group) + " has no backends"
}

// brokenShare is the answer to what would go to a broken reference.
func brokenShare(percent float64, stream bool) Outcome {
	o := Outcome{Percent: percent, Status: 500, Why: "the reference to the backend is broken"}
	if stream {
		o.Status = 503
	}
	return o
}

func outcomeText(outcomes []Outcome) string {
	answered := 0.0
	var rest []string
	for _, o := range outcomes {
		share, text := "", statusText(o.Status)
		if o.Percent != 100 {
			share = " to " + Share(o.Percent)
		}
		if o.GRPC != "" {
			text += " (to gRPC clients: " + o.GRPC + ")"
		}
		if o.Closed {
			text = "the connection is closed"
		}
		if o.Status == 0 && !o.Closed {
			answered += o.Percent
		} else {
			rest = append(rest, text+share+": "+o.Why)
		}
	}
	if len(rest) == 0 {
		return "a backend answers"
	}
	if answered > 0 {
		rest = slices.Insert(rest, 0, "a backend answers "+Share(answered))
	}
	return strings.Join(rest, "; ")
}

// Share is a percentage for people: "100%", "33.3%".
func Share(percent float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(percent, 'f', 1, 64), ".0") + "%"
}

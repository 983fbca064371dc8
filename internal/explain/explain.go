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

// Bounds of an explanation: a host may have thousands of routes.
const (
	maxTried   = 20
	maxAlso    = 5
	maxSources = 5
)

// World is what is known when a request is explained. The functions are asked about what
// concerns the request only; all but VirtualHost, Group, Set and Serving may be nil.
type World struct {
	Listeners   []model.Listener
	VirtualHost func(model.HostKey) *model.VirtualHost
	Group       func(model.GroupID) *model.BackendGroup
	Set         func(model.SetID) *model.BackendSet
	// Health is what the machines that check a group's backend came to; nil: it is not known.
	Health func(g model.GroupID, backend netip.AddrPort) model.Health
	// TLSHost is a server name at a listener, TLSHosts are the names that a listener has.
	TLSHost     func(model.HostKey) *model.TLSHost
	TLSHosts    func(model.ListenerID) []string
	Certificate func(model.CertificateID) *model.Certificate
	// MinTLS is the least version of every host name; empty is none.
	MinTLS model.TLSVersion
	// Serving names the machines that serve a listener, sorted.
	Serving func(model.ListenerID) []string

	// ListenerBy, HostBy and SetBy name the resources that brought something about.
	ListenerBy func(model.ListenerID) []Source
	HostBy     func(model.HostKey) []Source
	SetBy      func(model.SetID) []Source
	TLSBy      func(model.TLSHost) []Source
	// ClientsBy and BackendsBy are the policies that treat the clients of a listener and the
	// backends of a set.
	ClientsBy  func(model.ListenerID) []Source
	BackendsBy func(model.SetID) []Source
	// DiscoveredOf says of what the Service of a set was discovered; nil: it was not.
	DiscoveredOf func(model.SetID) *Discovered
	// PoliciesOf are the RoutePolicies that hold for a route, and those that hold for its
	// host, those that go before others first.
	PoliciesOf func(model.HostKey, *model.Route) (route, host []Says)
	// NamedBy are resources that name a host, whether or not they are served.
	NamedBy func(host string) []model.Object
	// OfOthers are the IngressRoutes that name a host and are another controller's.
	OfOthers func(host string) []OfOther
	// Where is "file:line" of a field, empty when it is not known.
	Where func(o model.Object, field string) string

	VIPs     []model.VIPStatus
	Machines []model.MachineStatus
	Problems []model.Problem
	// Standby names the leader when the plane that answers is not it, and so does not know
	// what machines do.
	Standby string
	// Offline says that there are no machines to ask: the world comes of manifests.
	Offline bool
	// Freeze holds changes back; Held says whether one of these hosts or listeners is held.
	Freeze *model.FreezeStatus
	Held   func([]model.HostKey, []model.ListenerID) bool
	// Now is when certificates are looked at; zero does not look at their time.
	Now time.Time
	// AllowUnderscores and TrustedHops as in the listeners' options.
	AllowUnderscores bool
	TrustedHops      uint32
}

// Source is the resource that decided something, and the field that says so.
type Source struct {
	model.Object
	Field string `json:"field,omitempty"` // path, like "spec.rules[0].matches[1]"
	Where string `json:"where,omitempty"` // file:line, where manifests are explained
}

// String is "HTTPRoute team/app spec.rules[0] (routes.yaml:12)".
func (s Source) String() string {
	text := s.Describe()
	if s.Field != "" {
		text += " " + s.Field
	}
	if s.Where != "" {
		text += " (" + s.Where + ")"
	}
	return text
}

// Explanation is what becomes of a request, step by step. A step that is not reached is
// nil; Answer says why.
type Explanation struct {
	Request Request `json:"request"`
	// Notes say what the proxy changes before it looks for a route.
	Notes    []string  `json:"notes,omitempty"`
	Network  Network   `json:"network"`
	Listener *Listener `json:"listener,omitempty"`
	TLS      *TLS      `json:"tls,omitempty"`
	Host     *Host     `json:"host,omitempty"`
	Routes   *Routes   `json:"routes,omitempty"`
	Route    *Route    `json:"route,omitempty"`
	Groups   []Group   `json:"groups,omitempty"`
	Answer   Answer    `json:"answer"`
	// OfOthers name the request's host, and nothing of them is served here.
	OfOthers []OfOther `json:"ofOthers,omitempty"`
	// OfOthersMore there are than OfOthers has.
	OfOthersMore int `json:"ofOthersMore,omitempty"`
	// Frozen says that changes are held back while routing is frozen.
	Frozen *Frozen `json:"frozen,omitempty"`
	// Problems that concern the request, in the order in which they were given.
	Problems []model.Problem `json:"problems"`
}

// Listener is where the proxies take the request.
type Listener struct {
	model.Listener
	By []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// ClientsBy are the ClientPolicies behind its settings for clients.
	ClientsBy []Source `json:"clientsBy,omitempty"`
	// Machines that serve it.
	Machines []string `json:"machines"`
	// Others listen at the same port, at other addresses; the first few.
	Others []model.ListenerID `json:"others,omitempty"`
	Notes  []string           `json:"notes,omitempty"`
}

// Frozen is a Freeze, seen from the request.
type Frozen struct {
	Since  time.Time `json:"since"`
	AsOf   time.Time `json:"asOf"`
	Reason string    `json:"reason,omitempty"`
	// Held says that a change of the listener or the host waits for the end of the freeze.
	Held bool `json:"held"`
}

// Host is how the virtual host was found.
type Host struct {
	// Name that was looked up: lower case, without port and trailing dot.
	Name string `json:"name"`
	// LookedFor in order, until one is there.
	LookedFor []string `json:"lookedFor"`
	// VirtualHost that was found, empty when none was.
	VirtualHost string `json:"virtualHost,omitempty"`
	// Kind is exact, wildcard or any.
	Kind string   `json:"kind,omitempty"`
	By   []Source `json:"by,omitempty"`
	// ByMore there are than By names.
	ByMore int `json:"byMore,omitempty"`
	// Routes of the virtual host.
	Routes int    `json:"routes"`
	Note   string `json:"note,omitempty"`
}

// Routes are those that do not take the request, in the order in which they are tried.
type Routes struct {
	// Tried counts the routes before the one that takes the request.
	Tried int `json:"tried"`
	// Passed are some of them, those first whose path matches, with the reason.
	Passed []Passed `json:"passed"`
	// Also would take the request if no route before them did; the first few.
	Also []Source `json:"also,omitempty"`
}

// Passed is a route that does not take the request.
type Passed struct {
	Source
	Match string `json:"match"`
	Why   string `json:"why"`
}

// Route is the one that takes the request.
type Route struct {
	// Name as the proxies log it.
	Name string `json:"name"`
	By   Source `json:"by"`
	// Match in words.
	Match string `json:"match"`
	// One of these is set.
	Respond  *model.Respond `json:"respond,omitempty"`
	Redirect *Redirect      `json:"redirect,omitempty"`
	Forward  *Forward       `json:"forward,omitempty"`
	// Policies that the request passes, in order.
	Policies []Policy `json:"policies,omitempty"`
	CORS     *CORS    `json:"cors,omitempty"`
	// ResponseHeaders are edited on the way back.
	ResponseHeaders *model.HeaderEdits `json:"responseHeaders,omitempty"`
}

// Answer is what the client gets.
type Answer struct {
	// Connects is false when nothing takes the connection, or not what the client speaks.
	Connects bool `json:"connects"`
	// Text says it in a sentence.
	Text string `json:"text"`
	// Outcomes add up to 100 percent when the client connects.
	Outcomes []Outcome `json:"outcomes"`
}

// Outcome is what becomes of a share of such requests.
type Outcome struct {
	Percent float64 `json:"percent"`
	// Status of an answer that the proxy gives; 0 when a backend answers.
	Status uint32 `json:"status,omitempty"`
	// GRPC is the status as gRPC clients get it, with HTTP status 200.
	GRPC string `json:"grpc,omitempty"`
	// Closed says that the connection is closed instead of an answer.
	Closed bool          `json:"closed,omitempty"`
	Group  model.GroupID `json:"group,omitempty"`
	Why    string        `json:"why,omitempty"`
}

// Explain says what becomes of a request.
func Explain(r Request, w World) Explanation {
	x := &explainer{request: r, world: w, e: Explanation{Request: r, Problems: []model.Problem{}}, concerned: map[string]bool{}}
	x.explain()
	if nobody := x.e.Network.Nobody; nobody != "" && x.e.Answer.Connects {
		x.refuse(nobody + "; if one did, " + x.e.Answer.Text)
	}
	x.problems()
	return x.e
}

// explainer goes through the steps.
type explainer struct {
	request   Request
	world     World
	e         Explanation
	concerned map[string]bool // subjects of problems
	others    []model.ListenerID
	grpc      bool // gRPC clients get the proxy's answers as gRPC statuses
}

func (x *explainer) explain() {
	l := x.enter()
	var id model.ListenerID
	if l != nil {
		id = l.ID
		x.listener(l)
	}
	x.network(id)
	name := strings.ToLower(stripPort(stripDot(x.request.Host)))
	if x.world.NamedBy != nil {
		x.concern(x.world.NamedBy(name)...)
	}
	x.ofOthers(name)
	x.frozen(id, name)
	tls := x.request.Scheme == "https"
	switch {
	case l == nil && tls:
		x.refuse("nothing listens for TLS at port " + x.port() + ": no Gateway and no root IngressRoute with TLS asks for it; the connection is refused")
		return
	case l == nil:
		x.refuse("nothing listens at port " + x.port() + ": no Gateway and no root IngressRoute asks for it; the connection is refused")
		return
	case tls && l.Protocol != model.ProtocolHTTPS:
		x.refuse("the listener at port " + x.port() + " speaks plain HTTP: the handshake does not come about")
		return
	case !tls && l.Protocol == model.ProtocolHTTPS:
		x.refuse("the listener at port " + x.port() + " speaks TLS: it closes connections in clear text")
		return
	}
	var c *session
	if tls {
		if c = x.handshake(l); c == nil {
			return
		}
	}
	s, ok := see(x.request, l, x.world)
	x.e.Notes = s.notes
	x.grpc = strings.HasPrefix(s.first("content-type")+"+", "application/grpc+")
	if ok && knownMethod(s.method) && s.escapedSlashes && x.turnedAway(l, s) {
		return
	}
	if reason := c.misdirected(s.host); ok && knownMethod(s.method) && reason != "" {
		x.e.Host = &Host{Name: s.host, LookedFor: []string{}}
		x.answer(421, reason)
		return
	}
	switch {
	case !knownMethod(s.method):
		x.answer(400, "it does not know the method "+s.method)
		return
	case !ok:
		x.answer(400, "the path has an escaped null")
		return
	}
	if model.Turns(s.headers[model.LoopHeader]) >= model.MaxTurns {
		x.answer(508, "the request has been at "+strconv.Itoa(model.MaxTurns)+" edges, by its header "+model.LoopHeader)
		return
	}
	host := x.host(id, s.host, c)
	switch {
	case host == nil && (c == nil || c.section != "") && !possibleHost(s.host):
		x.answer(400, "there can be no host "+quote(s.host))
		return
	case host == nil:
		if !x.badUpgrade(s) {
			x.answer(404, "no virtual host of "+string(id)+" has the name "+s.host)
		}
		return
	case c != nil && s.host != c.name && host.Host == s.host && host.Section != "" && host.Section != c.section:
		x.answer(421, "the host "+s.host+" is not served under the server name "+quote(c.name)+": it belongs to the section "+host.Section)
		return
	}
	route, how := x.route(host, s)
	if route == nil {
		switch {
		case x.badUpgrade(s):
		case s.upgrade != "" && host.NoUpgrade():
			x.answer(400, noUpgradeText)
		default:
			x.answer(404, "no route of "+host.Host+" takes the request")
		}
		return
	}
	x.take(host, *route, s, how)
}

// turnedAway answers a request whose path has escaped slashes, unless they are taken for slashes.
func (x *explainer) turnedAway(l *model.Listener, s seen) bool {
	switch how := l.EscapedSlashes(); {
	case how == model.SlashesReject:
		x.answer(400, "the path has an escaped slash, which a ClientPolicy refuses")
	case how == model.SlashesRedirect && x.grpc:
		x.answer(400, "the path has an escaped slash, and clients of gRPC follow no redirect")
	case how == model.SlashesRedirect:
		to := s.path
		if s.query != "" {
			to += "?" + s.query
		}
		x.answer(307, "the path has an escaped slash: the client is sent to "+to)
	default:
		return false
	}
	return true
}

// frozen notes a freeze, and whether it holds something back for the request.
func (x *explainer) frozen(id model.ListenerID, name string) {
	f := x.world.Freeze
	if f == nil {
		return
	}
	x.e.Frozen = &Frozen{Since: f.Since, AsOf: f.AsOf, Reason: f.Reason, Held: f.Unknown}
	if x.world.Held == nil {
		return
	}
	var keys []model.HostKey
	for _, host := range candidates(name) {
		keys = append(keys, model.HostKey{Listener: id, Host: host})
	}
	x.e.Frozen.Held = x.e.Frozen.Held || x.world.Held(keys, []model.ListenerID{id})
}

// possibleHost says whether a host that no shard knows is looked for among the wildcards.
func possibleHost(host string) bool {
	for i := range len(host) {
		c := host[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(".-_:[]", c) < 0 {
			return false
		}
	}
	return true
}

func (x *explainer) port() string { return strconv.Itoa(int(x.request.Port)) }

// refuse ends with a client that has no connection.
func (x *explainer) refuse(why string) { x.e.Answer = Answer{Text: why, Outcomes: []Outcome{}} }

// answer ends with an answer of the proxy.
func (x *explainer) answer(status uint32, why string) {
	x.outcome([]Outcome{{Percent: 100, Status: status, Why: why}})
}

// outcome ends with outcomes.
func (x *explainer) outcome(outcomes []Outcome) {
	for i := range outcomes {
		if o := &outcomes[i]; x.grpc && o.Status != 0 {
			o.GRPC = grpcStatus(o.Status)
		}
	}
	x.e.Answer = Answer{Connects: true, Outcomes: outcomes, Text: outcomeText(outcomes)}
}

// grpcStatus is what Envoy makes of an answer of its own for a gRPC client (gRPC, "HTTP to
// gRPC Status Code Mapping").
func grpcStatus(status uint32) string {
	switch status {
	case 400:
		return "INTERNAL"
	case 401:
		return "UNAUTHENTICATED"
	case 403:
		return "PERMISSION_DENIED"
	case 404:
		return "UNIMPLEMENTED"
	case 429, 502, 503, 504:
		return "UNAVAILABLE"
	}
	return "UNKNOWN"
}

const (
	webSocket     = "websocket"
	noUpgradeText = "it asks for a WebSocket, and the route takes none"
)

// badUpgrade answers a request for an upgrade that no route takes.
func (x *explainer) badUpgrade(s seen) bool {
	if s.upgrade != "" && s.upgrade != webSocket {
		x.answer(400, "it asks for an upgrade to "+s.upgrade+", and connections are upgraded to WebSockets only")
		return true
	}
	_, long := s.headers["content-length"]
	_, coded := s.headers["transfer-encoding"]
	if s.upgrade == "" || s.method == "GET" && !long && !coded {
		return false
	}
	x.answer(400, "it asks for a WebSocket, which begins with a GET without a body")
	return true
}

func statusText(status uint32) string {
	return "the proxy answers " + strconv.FormatUint(uint64(status), 10)
}

// host finds the virtual host: the exact name, then the wildcards from the longest suffix,
// then "*". Proxies do not go on to a wildcard from a host that has no route for a request.
// Under an exact server name no wildcard is looked for.
func (x *explainer) host(id model.ListenerID, name string, c *session) *model.VirtualHost {
	h := &Host{Name: name, LookedFor: []string{}}
	x.e.Host = h
	look := func(host string) *model.VirtualHost {
		h.LookedFor = append(h.LookedFor, host)
		return x.world.VirtualHost(model.HostKey{Listener: id, Host: host})
	}
	found, kind := look(name), "exact"
	if found == nil && (c == nil || c.section != "") && possibleHost(name) {
		for i := 0; found == nil && i < len(name); i++ {
			if name[i] == '.' && i > 0 {
				found, kind = look("*"+name[i:]), "wildcard"
			}
		}
		if found == nil {
			found, kind = look("*"), "any"
		}
	}
	if found == nil {
		return nil
	}
	h.VirtualHost, h.Kind, h.Routes = found.Host, kind, len(found.Routes)
	if x.world.HostBy != nil {
		h.By, h.ByMore = x.sources(x.world.HostBy(found.HostKey)...)
	}
	return found
}

// route finds the first route that takes the request, and notes those before it.
func (x *explainer) route(host *model.VirtualHost, s seen) (*model.Route, taken) {
	t := &Routes{Passed: []Passed{}}
	x.e.Routes = t
	type pass struct {
		at   int
		why  string
		near bool
	}
	var passes []pass
	taker, as := -1, notTaken
	for i := range host.Routes {
		r := &host.Routes[i]
		how, why, near := takes(host, r, s)
		switch {
		case taker < 0 && why == "":
			taker, as = i, how
		case taker < 0:
			passes = append(passes, pass{i, why, near})
		case why == "" && len(t.Also) < maxAlso:
			t.Also = append(t.Also, x.source(routeSource(*r)))
		}
	}
	t.Tried = len(passes)
	// Those whose path matches tell most.
	slices.SortStableFunc(passes, func(a, b pass) int {
		switch {
		case a.near == b.near:
			return 0
		case a.near:
			return -1
		}
		return 1
	})
	for _, p := range passes[:min(len(passes), maxTried)] {
		r := host.Routes[p.at]
		t.Passed = append(t.Passed, Passed{Source: x.source(routeSource(r)), Match: matchText(r.Match), Why: p.why})
	}
	if taker >= 0 {
		return &host.Routes[taker], as
	}
	switch {
	case len(host.Routes) == 0:
		x.e.Host.Note = "it has no routes"
	case x.e.Host.Kind != "any":
		x.e.Host.Note = "no wildcard takes requests that " + host.Host + " has no route for"
	}
	return nil, notTaken
}

// routeSource is where a route was written: its name says it.
func routeSource(r model.Route) Source {
	s := Source{Object: r.Owner}
	rest, ok := strings.CutPrefix(r.Name, r.Owner.Key()+"/")
	if !ok {
		return s
	}
	parts := strings.Split(rest, "/")
	if parts[0] == "refused" {
		s.Field = "spec.routes"
		return s
	}
	s.Field = "spec"
	for i := 0; i+1 < len(parts); i += 2 {
		s.Field += "." + parts[i] + "[" + parts[i+1] + "]"
	}
	return s
}

// source notes that a resource concerns the request, and where it says so.
func (x *explainer) source(s Source) Source {
	x.concern(s.Object)
	return x.place(s)
}

// place adds file and line, where they are known.
func (x *explainer) place(s Source) Source {
	if x.world.Where != nil {
		s.Where = x.world.Where(s.Object, s.Field)
	}
	return s
}

// sources are the first few, sorted, and how many more there are.
func (x *explainer) sources(all ...Source) (first []Source, more int) {
	first, more = firstSources(all)
	for i := range first {
		first[i] = x.source(first[i])
	}
	return first, more
}

func firstSources(all []Source) (first []Source, more int) {
	slices.SortFunc(all, func(a, b Source) int {
		return cmp.Or(a.Compare(b.Object), cmp.Compare(a.Field, b.Field))
	})
	first = all[:min(len(all), maxSources)]
	return first, len(all) - len(first)
}

func (x *explainer) concern(objects ...model.Object) {
	for _, o := range objects {
		x.concerned[o.String()] = true
	}
}

// problems keeps those of resources that concern the request.
func (x *explainer) problems() {
	for _, p := range x.world.Problems {
		subject, _, _ := strings.Cut(p.Subject, " at ") // "BGPPeer tor at edge-1"
		if x.concerned[p.Subject] || x.concerned[subject] {
			x.e.Problems = append(x.e.Problems, p)
		}
	}
}

// vipSubject is how problems name a VIP.
func vipSubject(a netip.Addr) string { return "VIP " + a.String() }

// Package v1 declares the answers of consoles, as JSON has them: what `fairlead status`
// and its like, the support bundle, tests and web pages read. TypeScript's form of them
// is in types.ts.
//
// It holds data and no logic beyond the words for a value. Planes and agents make their
// answers of their own types; tests hold the two forms to the same bytes (v1test).
//
// Invariant: a field that was there once keeps its name, its type and its meaning.
// Lists are as long as the edge has objects; of flows a machine sends at most MaxFlows,
// and a client reads at most MaxAnswer of any answer. Durations are nanoseconds, and
// their names say so; times are in RFC 3339.
package v1

// Where consoles answer. A plane has all paths but DropsPath, an agent StatusPath and, at a socket, DropsPath.
const (
	// StatusPath is where a plane or an agent shows its status: Status or AgentStatus. OfLeader is the query by which
	// it is asked of the plane that leads, as everything else always is; without it a plane answers for itself.
	StatusPath = "/v1/status"
	OfLeader   = "of=leader"
	// RoutesPath is where a plane lists the routes of the edges, a list of Route. Its parameters, host and namespace, may
	// be left out.
	RoutesPath = "/v1/routes"
	// BackendsPath is where a plane lists the backends of frontends, a list of BackendStatus. Its parameter "of" names
	// a frontend, a VIP or an owner; all without it.
	BackendsPath = "/v1/backends"
	// FlowsPath is where a plane lists what flow tables have, a FlowList. Its parameters frontend, client (an address or a
	// CIDR), backend (an address), machine and limit may be left out.
	FlowsPath = "/v1/flows"
	// RevisionsPath is where a plane lists the steps of routing that it can turn back, a list of Revision, newest first.
	RevisionsPath = "/v1/revisions"
	// ChangesPath is where a plane lists the last changes of objects in the API, a list of Change, newest first. Its parameters
	// object ("KIND/NAMESPACE/NAME", "KIND/NAME" or "KIND"), namespace, who and since (a time in RFC 3339) may be left out.
	ChangesPath = "/v1/changes"
	// UpstreamsPath is where a plane lists the upstreams, a list of Upstream. Its parameter "name" names one, whose last
	// changes are then listed, too.
	UpstreamsPath = "/v1/upstreams"
	// TopPath is where a plane says what proxies answer a second, by a Top. Its parameters may be given: by (routes, hosts,
	// namespaces or listeners), namespace, sort (rate, errors or name), and limit, a number of rows.
	TopPath = "/v1/top"
	// MetricsPath is where a plane has the metrics of requests of all machines for Prometheus, in a format that the header Accept
	// chooses. Its parameter "namespace" may be given.
	MetricsPath = "/v1/metrics"
	// ExplainPath is where a plane explains a request, by an Explanation. Its parameters are url, which must be given,
	// method, from, vip, sni, and any number of header ("name: value").
	ExplainPath = "/v1/explain"
	// ExplainFlowPath is where a plane explains a flow, by a FlowExplanation. Its parameters are url ("tcp://VIP:PORT") and
	// from ("IP:PORT"), which must be given, and machine.
	ExplainFlowPath = "/v1/explain/flow"
	// DropsPath is where an agent shows dropped packets as they come, a Drop a line. Its parameter "reason" may be given
	// several times; without it all are shown. It is served at a socket that only the agent's user can use: packets are
	// other people's.
	DropsPath = "/v1/drops"
)

const (
	// MaxFlows is how many flows of each machine may be asked for.
	MaxFlows = 20_000
	// MaxAnswer bounds what a client reads of one answer, bytes.
	MaxAnswer = 256 << 20
)

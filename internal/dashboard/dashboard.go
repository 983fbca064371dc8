// Package dashboard declares the dashboards for Grafana and the alert rules for Prometheus: which
// questions they answer, by which queries, and what an absent answer means.
//
// It refuses to know how metrics come about, and asks no server anything: it returns dashboards and
// rules as values, and renders them. Invariant: queries use only metrics and labels that the
// reference lists, so no panel is empty by mistake.
package dashboard

// Kind is how a panel shows its data.
type Kind int

// The kinds of panels.
const (
	Series  Kind = iota // lines over time
	Stacked             // areas over time that add up
	Stat                // the last value, large
)

// Unit is a unit of Grafana's.
type Unit string

// The units that panels use.
const (
	Number      Unit = "short"
	Integer     Unit = "none"
	PerSecond   Unit = "ops"
	Requests    Unit = "reqps"
	Seconds     Unit = "s"
	Share       Unit = "percentunit"
	Bytes       Unit = "bytes"
	BytesPerSec Unit = "Bps"
	Packets     Unit = "pps"
)

// Dashboard is one page of panels.
type Dashboard struct {
	// Name is that of the file, and the end of the UID.
	Name string
	// Title in lists; Description says which question the page answers.
	Title, Description string
	Variables          []Variable
	Rows               []Row
}

// Variable is a choice at the top of a page: values of a label.
type Variable struct {
	// Name in queries, without $; Label for people.
	Name, Label string
	// Metric whose label has the values.
	Metric, Of string
}

// Row is panels under a heading.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel answers one question.
type Panel struct {
	Title string
	// Description says in plain words what is shown, and what it means if there is no data.
	Description string
	Kind        Kind
	Unit        Unit
	// Width in columns of 24; 0 means that of the kind.
	Width   int
	Queries []Query
	// Steps are values from which on a stat or a line is coloured. None: values are neither good nor bad.
	Steps []Step
	// Falling says that low values are bad: the colours of Steps begin with red.
	Falling bool
	// Coloured says that the legends are classes of statuses or states, which have colours of their own.
	Coloured bool
}

// Query is an expression of PromQL, and the legend of what it returns.
type Query struct{ Expr, Legend string }

// Step is a value from which on a colour holds.
type Step struct {
	From   float64
	Colour string
}

// Colours of Grafana's that mean something here.
const (
	green  = "green"
	yellow = "yellow"
	orange = "orange"
	red    = "red"
)

// bad colours everything but 0.
var bad = []Step{{1, red}}

// doubtful colours everything but 0, less loudly.
var doubtful = []Step{{1, orange}}

// All returns every dashboard, in the order in which people need them.
func All() []Dashboard {
	return []Dashboard{overview(), namespaces(), envoy(), network(), discovery(), weights(), plane()}
}

var (
	machineVariable   = Variable{Name: "instance", Label: "Machine", Metric: "fairlead_agent_plane_connected", Of: "instance"}
	namespaceVariable = Variable{Name: "namespace", Label: "Namespace", Metric: "fairlead_requests_by_namespace_total", Of: "namespace"}
	upstreamVariable  = Variable{Name: "upstream", Label: "Upstream", Metric: "fairlead_discovery_services", Of: "upstream"}
)

func one(expr, legend string) []Query { return []Query{{expr, legend}} }

// quantiles are those of a histogram: by are labels that stay, with a comma after each.
func quantiles(metric, selector string) []Query {
	of := func(q, legend string) Query {
		return Query{"histogram_quantile(" + q + ", sum by (le) (rate(" + metric + "_bucket" + selector + "[$__rate_interval])))", legend}
	}
	return []Query{of("0.5", "half within"), of("0.95", "95 % within"), of("0.99", "99 % within")}
}

package dashboard

import "time"

// Severity says who is to look, and when.
type Severity string

// The severities.
const (
	Page   Severity = "page"   // somebody is hurt or will be soon: at once
	Ticket Severity = "ticket" // nobody is hurt yet: in working hours
)

// Alert is a rule that fires while its expression has a result.
type Alert struct {
	Name string
	// Expr is PromQL. {window} stands for Window.
	Expr string
	// Window is the time over which Expr looks back; For is how long it must hold.
	Window, For time.Duration
	Severity    Severity
	// Summary and Description are for the person who is called; labels of the result may stand in them
	// as {{ $labels.name }}.
	Summary, Description string
}

// Alerts returns every alert. Each has a page of its name in docs/runbooks.
func Alerts() []Alert {
	return []Alert{
		{
			Name: "FairleadNoLeader", Expr: `(sum(fairlead_plane_leading) or vector(0)) < 1`, For: 2 * time.Minute, Severity: Page,
			Summary: "No plane leads", Description: "Traffic goes on in its last state, but no change takes effect and no machine may join. It fires, too, if Prometheus reaches no plane.",
		},
		{
			Name: "FairleadMachineLost", Expr: `max(fairlead_plane_machines{state="lost"} and on (instance) fairlead_plane_leading == 1) > 0`, For: 2 * time.Minute, Severity: Page,
			Summary: "{{ $value }} machines are lost", Description: "The plane has not heard of these machines for longer than --machine-ttl. Others carry their VIPs.",
		},
		{
			Name: "FairleadScrapeMissing", Expr: `up{job=~".*fairlead.*"} == 0`, For: 5 * time.Minute, Severity: Ticket,
			Summary: "Prometheus cannot read {{ $labels.instance }}", Description: "Alerts about this plane or agent do not work meanwhile.",
		},
		{
			Name: "FairleadAgentWithoutPlane", Expr: `fairlead_agent_plane_connected == 0`, For: 10 * time.Minute, Severity: Ticket,
			Summary: "The agent {{ $labels.instance }} has no plane", Description: "The machine serves its last state and gets no change.",
		},
		{
			Name: "FairleadSourceFailing", Expr: `max(fairlead_plane_source_kinds_failing and on (instance) fairlead_plane_leading == 1) > 0`, For: 5 * time.Minute, Severity: Page,
			Summary: "The API does not answer for {{ $value }} kinds of resources", Description: "Their last known objects stay in effect; changes of them have none.",
		},
		{
			Name: "FairleadRevisionNotApplied", Expr: `(fairlead_agent_accepted_revision - fairlead_agent_applied_revision > 0) and (changes(fairlead_agent_applied_revision[{window}]) == 0)`, Window: 10 * time.Minute, For: 5 * time.Minute, Severity: Ticket,
			Summary: "The proxy of {{ $labels.instance }} does not take up changes", Description: "It runs an old revision. Requests are answered by an old state of routes and backends.",
		},
		{
			Name: "FairleadResourcesRefused", Expr: `fairlead_agent_problems{kind="refused"} > 0`, For: 5 * time.Minute, Severity: Ticket,
			Summary: "The proxy of {{ $labels.instance }} refuses {{ $value }} resources", Description: "Each keeps its last good version, if it had one. Everything else is in effect.",
		},
		{
			Name: "FairleadProxyRestarts", Expr: `changes(fairlead_agent_proxy_starts[{window}]) > 2`, Window: 15 * time.Minute, Severity: Page,
			Summary: "The proxy of {{ $labels.instance }} restarts again and again", Description: "Each end breaks the connections of that machine.",
		},
		{
			Name: "FairleadBGPSessionDown", Expr: `fairlead_agent_bgp_session_established == 0`, For: 2 * time.Minute, Severity: Page,
			Summary: "{{ $labels.instance }} has no BGP session with {{ $labels.peer }}", Description: "This router does not send the machine any traffic. Without a session at any machine, the VIPs are away.",
		},
		{
			Name: "FairleadVIPNotAnnounced", Expr: `sum(max by (state) (fairlead_plane_vips{state!="announced"} and on (instance) fairlead_plane_leading == 1)) > 0`, For: 2 * time.Minute, Severity: Page,
			Summary: "{{ $value }} VIPs are announced by no machine", Description: "Clients of these addresses get no answer.",
		},
		{
			Name: "FairleadPacketsDropped", Expr: `sum by (instance, reason) (rate(fairlead_lb_dropped_packets_total{reason!~"no-frontend|map-full"}[{window}])) > 10`, Window: 5 * time.Minute, For: 5 * time.Minute, Severity: Ticket,
			Summary: "{{ $labels.instance }} drops packets: {{ $labels.reason }}", Description: "More than 10 packets a second are dropped for this reason. Packets to closed ports of VIPs, such as scans, do not count.",
		},
		{
			Name: "FairleadBackendsUnhealthy", Expr: `max(fairlead_plane_checks{health="unhealthy"} and on (instance) fairlead_plane_leading == 1) > 0`, For: 10 * time.Minute, Severity: Ticket,
			Summary: "{{ $value }} backends are unhealthy", Description: "They get no new requests and flows. The others carry their share.",
		},
		{
			Name: "FairleadPanic", Expr: `max(fairlead_plane_frontends_panicking and on (instance) fairlead_plane_leading == 1) > 0`, For: 2 * time.Minute, Severity: Page,
			Summary: "{{ $value }} frontends are in panic", Description: "So few of their backends are healthy that health is ignored, so part of the new flows goes to dead backends.",
		},
		{
			Name: "FairleadErrors", Expr: `sum by (namespace) (rate(fairlead_requests_by_namespace_total{class="5xx"}[{window}])) / sum by (namespace) (rate(fairlead_requests_by_namespace_total[{window}])) > 0.05 and sum by (namespace) (rate(fairlead_requests_by_namespace_total{class="5xx"}[{window}])) > 0.1`, Window: 5 * time.Minute, For: 5 * time.Minute, Severity: Page,
			Summary: "{{ $value | humanizePercentage }} of the requests of namespace {{ $labels.namespace }} get 5xx", Description: "More than 5 % of its requests are answered with an error of the server.",
		},
		{
			Name: "FairleadSlow", Expr: `1 - sum by (namespace) (rate(fairlead_request_seconds_by_namespace_bucket{le="2.5"}[{window}])) / sum by (namespace) (rate(fairlead_request_seconds_by_namespace_bucket{le="+Inf"}[{window}])) > 0.05`, Window: 5 * time.Minute, For: 10 * time.Minute, Severity: Ticket,
			Summary: "{{ $value | humanizePercentage }} of the requests of namespace {{ $labels.namespace }} take longer than 2.5 s", Description: "Backends of this namespace are slow: more than one answer in twenty takes longer than 2.5 seconds.",
		},
		{
			Name: "FairleadCertificateExpires", Expr: `max(fairlead_plane_certificate_next_expiry_timestamp_seconds > 0 and on (instance) fairlead_plane_leading == 1) - time() < 14 * 86400`, For: 10 * time.Minute, Severity: Ticket,
			Summary: "A certificate expires in {{ $value | humanizeDuration }}", Description: "After that clients refuse the connection. What renews it has not done so two weeks before its end.",
		},
		{
			Name: "FairleadMachineCertificateExpires", Expr: `(fairlead_agent_certificate_expiry_timestamp_seconds > 0) - time() < 86400`, For: 10 * time.Minute, Severity: Ticket,
			Summary: "The certificate of the machine {{ $labels.instance }} expires in {{ $value | humanizeDuration }}", Description: "The agent renews it at a plane more than two days before its end, and has not been able to. After its end the machine gets no change and must join again with a new token.",
		},
		{
			Name: "FairleadUpstreamNotRead", Expr: `sum(max by (state) (fairlead_discovery_upstreams{state!="current"})) > 0`, For: 10 * time.Minute, Severity: Ticket,
			Summary: "{{ $value }} upstreams are not current", Description: "Their last known services stay in effect; what changes there does not follow.",
		},
		{
			Name: "FairleadStateNotStored", Expr: `fairlead_agent_remember_failing == 1`, For: 5 * time.Minute, Severity: Ticket,
			Summary: "{{ $labels.instance }} cannot store its state", Description: "After a restart without a plane the machine would serve an older state, or nothing.",
		},
	}
}

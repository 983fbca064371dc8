package dashboard

// discovery: upstreams.
func discovery() Dashboard {
	const of = `{upstream=~"$upstream"}`
	return Dashboard{
		Name: "discovery", Title: "Fairlead / Discovery", Description: "Are the upstreams read, does everything follow, and how fast? No data on this page means that no plane leads or that there is no Upstream.",
		Variables: []Variable{upstreamVariable},
		Rows: []Row{
			{"Are they read?", []Panel{
				{Title: "Upstreams by state", Kind: Series, Unit: Integer, Coloured: true, Description: "Only current is good. fairlead upstreams says which upstream has which state, and why.", Queries: one(`max by (state) (fairlead_discovery_upstreams)`, "{{state}}")},
				{Title: "Since the last answer", Kind: Series, Unit: Seconds, Description: "Time since the upstream answered. A quiet upstream answers at least each minute.", Queries: one(`time() - max by (upstream) (fairlead_discovery_last_contact_timestamp_seconds`+of+` > 0)`, "{{upstream}}")},
				{Title: "Since the last complete list", Kind: Series, Unit: Seconds, Description: "Time since a complete list was read. Clusters report changes one by one, so a long time is normal for them; for a cloud it should be its sweepInterval.", Queries: one(`time() - max by (upstream) (fairlead_discovery_last_sweep_timestamp_seconds`+of+` > 0)`, "{{upstream}}")},
				{Title: "Requests to the API", Kind: Series, Unit: Requests, Description: "Requests a second by class of the answer. The class none means that there was no answer.", Queries: one(`sum by (upstream, code) (rate(fairlead_discovery_requests_total`+of+`[$__rate_interval]))`, "{{upstream}} {{code}}")},
			}},
			{"Does everything follow?", []Panel{
				{Title: "Services", Kind: Series, Unit: Integer, Description: "Services seen in the upstream, replicated here, and held here although the upstream does not list them.", Queries: one(`sum by (upstream, state) (fairlead_discovery_services`+of+`)`, "{{upstream}} {{state}}")},
				{Title: "Endpoints", Kind: Series, Unit: Integer, Description: "Endpoints by the same states.", Queries: one(`sum by (upstream, state) (fairlead_discovery_endpoints`+of+`)`, "{{upstream}} {{state}}")},
				{Title: "Left out", Kind: Series, Unit: Integer, Steps: doubtful, Description: "Services and parts of services that are refused, by reason; fairlead upstreams NAME lists them. No data means that nothing is refused.", Queries: one(`sum by (upstream, reason) (fairlead_discovery_refused`+of+`)`, "{{upstream}} {{reason}}")},
				{Title: "Objects that wait to be written", Kind: Series, Unit: Integer, Description: "Discovered objects that the API does not have yet. They take effect without it.", Queries: one(`max(fairlead_discovery_writes_queued)`, "waiting")},
			}},
			{"How fast?", []Panel{
				{Title: "99 % of changes after", Kind: Series, Unit: Seconds, Width: 24, Description: "Time from when a source sees a changed service: until the plane has decided, until it has published, and until every machine concerned carries it out. No data means that nothing has changed lately.", Queries: []Query{
					{`histogram_quantile(0.99, sum by (le) (rate(fairlead_discovery_decided_seconds_bucket[$__rate_interval])))`, "decided"},
					{`histogram_quantile(0.99, sum by (le) (rate(fairlead_discovery_published_seconds_bucket[$__rate_interval])))`, "published"},
					{`histogram_quantile(0.99, sum by (le) (rate(fairlead_discovery_in_force_seconds_bucket[$__rate_interval])))`, "in force"},
				}},
			}},
		},
	}
}

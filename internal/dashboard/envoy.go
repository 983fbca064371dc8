package dashboard

// envoy: the proxies of the machines.
func envoy() Dashboard {
	const of = `{instance=~"$instance"}`
	return Dashboard{
		Name: "envoy", Title: "Fairlead / Envoy", Description: "The proxy of each machine: does it run what it was sent, what does it carry, and what does it cost?",
		Variables: []Variable{machineVariable},
		Rows: []Row{
			{"Does it run what it was sent?", []Panel{
				{Title: "Ready", Kind: Series, Unit: Integer, Description: "1 while the machine's proxy is ready. It is 0 at a machine that runs none.", Queries: one(`fairlead_agent_proxy_ready`+of, "{{instance}}")},
				{Title: "Starts since the agent started", Kind: Series, Unit: Integer, Description: "A line that climbs is a proxy that ends again and again. It begins anew when the agent does.", Queries: one(`fairlead_agent_proxy_starts`+of, "{{instance}}")},
				{Title: "Revisions behind", Kind: Series, Unit: Integer, Steps: doubtful, Description: "How far the revision that the proxy runs is behind the last one that the machine was sent. It is above 0 for moments after a change.", Queries: one(`fairlead_agent_accepted_revision`+of+` - fairlead_agent_applied_revision`+of, "{{instance}}")},
				{Title: "Resources refused or waiting", Kind: Series, Unit: Integer, Steps: doubtful, Description: "Resources that the proxy does not run as the plane requires. Refused ones keep their last good version; fairlead status names them.", Queries: one(`fairlead_agent_problems`+of, "{{instance}} {{kind}}")},
			}},
			{"What does it carry?", []Panel{
				{Title: "Requests by listener", Kind: Series, Unit: Requests, Description: "Requests answered a second. No data means that no request has come yet.", Queries: one(`sum by (listener) (rate(fairlead_requests_by_listener_total`+of+`[$__rate_interval]))`, "{{listener}}")},
				{Title: "95 % answered within, by listener", Kind: Series, Unit: Seconds, Description: "Time from the first byte of a request to the last of its answer. No data means that no request has come yet.", Queries: one(`histogram_quantile(0.95, sum by (le, listener) (rate(fairlead_request_seconds_by_listener_bucket`+of+`[$__rate_interval])))`, "{{listener}}")},
				{Title: "Open connections by listener", Kind: Series, Unit: Number, Description: "Connections of clients that are open now.", Queries: one(`sum by (listener) (fairlead_open_connections_by_listener`+of+`)`, "{{listener}}")},
				{Title: "New connections by listener", Kind: Series, Unit: PerSecond, Description: "Connections that clients open a second.", Queries: one(`sum by (listener) (rate(fairlead_connections_by_listener_total`+of+`[$__rate_interval]))`, "{{listener}}")},
				{Title: "Answers of upstreams by class", Kind: Series, Unit: Requests, Description: "Answers of backends a second, tries included, by the Upstream that the Service comes from, the ten largest rates. No data means that no request has gone to a Service of an Upstream.", Queries: one(`topk(10, sum by (upstream, class) (rate(fairlead_requests_by_upstream_total`+of+`[$__rate_interval])))`, "{{upstream}} {{class}}")},
				{Title: "Slowest upstreams", Kind: Series, Unit: Seconds, Description: "Time within which 95 % of an Upstream's backends answer, each try by itself, for the ten with the longest. No data means that no request has gone to a Service of an Upstream.", Queries: one(`topk(10, histogram_quantile(0.95, sum by (le, upstream) (rate(fairlead_request_seconds_by_upstream_bucket`+of+`[$__rate_interval]))))`, "{{upstream}}")},
			}},
			{"What does it cost?", []Panel{
				{Title: "Resident memory of the proxy", Kind: Series, Unit: Bytes, Description: "Memory of Envoy alone, without the agent.", Queries: one(`fairlead_agent_proxy_resident_bytes`+of, "{{instance}}")},
				{Title: "Figures of requests are current", Kind: Series, Unit: Integer, Falling: true, Steps: []Step{{1, green}}, Description: "1 while the proxy has answered the last question for what it has counted. At 0 the requests, times and bytes of this machine are older: its proxy hangs.", Queries: one(`fairlead_agent_proxy_read_current`+of, "{{instance}}")},
				{Title: "Names without series of their own", Kind: Series, Unit: Integer, Description: "Hosts, namespaces and the like that came after the bound of series and are counted as other.", Queries: one(`sum by (by) (fairlead_agent_names_left_out`+of+`)`, "{{by}}")},
				{Title: "Repairs", Kind: Series, Unit: Integer, Steps: doubtful, Description: "Repairs in an hour of resources that the proxy had accepted and did not use, by step. Each is a fault of Envoy that was mended; report repeated ones.", Queries: one(`increase(fairlead_agent_proxy_mends_total`+of+`[1h])`, "{{instance}} {{step}}")},
			}},
		},
	}
}

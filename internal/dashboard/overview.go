package dashboard

// overview: is all well, and where to look next?
func overview() Dashboard {
	return Dashboard{
		Name: "overview", Title: "Fairlead / Overview", Description: "Is all well? Who is slow or failing, and since when? Each row leads to a dashboard with more.",
		Rows: []Row{
			{"Is all well?", []Panel{
				{Title: "Firing alerts", Kind: Stat, Unit: Integer, Steps: bad, Description: "Alerts of Fairlead that fire now. 0 also if the rules are not loaded: compare with Alerts in Prometheus.", Queries: one(`count(ALERTS{alertname=~"Fairlead.*",alertstate="firing"}) or vector(0)`, "")},
				{Title: "Leading planes", Kind: Stat, Unit: Integer, Steps: []Step{{1, green}, {2, orange}}, Falling: true, Description: "Planes that lead. 1 is right. With 0 traffic goes on in its last state, and no change takes effect.", Queries: one(`sum(fairlead_plane_leading)`, "")},
				{Title: "Machines away", Kind: Stat, Unit: Integer, Steps: bad, Description: "Machines that the plane has lost.", Queries: one(`max(fairlead_plane_machines{state="lost"} and on (instance) fairlead_plane_leading == 1)`, "")},
				{Title: "VIPs without a machine", Kind: Stat, Unit: Integer, Steps: bad, Description: "Assigned VIPs that no machine announces, as far as the plane knows.", Queries: one(`sum(max by (state) (fairlead_plane_vips{state!="announced"} and on (instance) fairlead_plane_leading == 1)) or vector(0)`, "")},
				{Title: "Unhealthy backends", Kind: Stat, Unit: Integer, Steps: doubtful, Description: "Backends that the majority of their checkers finds unhealthy. The dashboard Weights has more.", Queries: one(`max(fairlead_plane_checks{health="unhealthy"} and on (instance) fairlead_plane_leading == 1)`, "")},
				{Title: "Next certificate expires in", Kind: Stat, Unit: Seconds, Falling: true, Steps: []Step{{2 * 86400, orange}, {14 * 86400, green}}, Description: "Time until the certificate in use that expires first does so. No data means that no certificate is in use.", Queries: one(`max(fairlead_plane_certificate_next_expiry_timestamp_seconds > 0 and on (instance) fairlead_plane_leading == 1) - time()`, "")},
			}},
			{"Requests: who is slow or failing, since when?", []Panel{
				{Title: "Requests by class of the status", Kind: Stacked, Unit: Requests, Coloured: true, Description: "Requests that all proxies answer a second. The class none counts clients that left before an answer. No data means that no request has come yet.", Queries: one(`sum by (class) (rate(fairlead_requests_by_listener_total[$__rate_interval]))`, "{{class}}")},
				{Title: "Time to answer", Kind: Series, Unit: Seconds, Description: "Time from the first byte of a request to the last of its answer, at all proxies: the time within which a share of requests is answered. No data means that no request has come yet.", Queries: quantiles("fairlead_request_seconds_by_listener", "")},
				{Title: "Namespaces that answer most errors", Kind: Series, Unit: Share, Steps: []Step{{0.05, red}}, Description: "Share of 5xx among the requests of a namespace, for the five with the largest. No data means that no request has come yet. The dashboard Namespaces has more.", Queries: one(`topk(5, sum by (namespace) (rate(fairlead_requests_by_namespace_total{class="5xx"}[$__rate_interval])) / sum by (namespace) (rate(fairlead_requests_by_namespace_total[$__rate_interval])) or sum by (namespace) (rate(fairlead_requests_by_namespace_total[$__rate_interval])) * 0)`, "{{namespace}}")},
				{Title: "Slowest namespaces", Kind: Series, Unit: Seconds, Description: "Time within which 95 % of the answers of a namespace's backends come, for the five with the longest. No data means that no request has come yet.", Queries: one(`topk(5, histogram_quantile(0.95, sum by (le, namespace) (rate(fairlead_request_seconds_by_namespace_bucket[$__rate_interval]))))`, "{{namespace}}")},
			}},
			{"Machines: which one differs from the others?", []Panel{
				{Title: "Requests by machine", Kind: Series, Unit: Requests, Description: "Requests that each machine's proxy answers a second. Machines of one pool should be alike. No data means that no request has come yet. The dashboard Envoy has more.", Queries: one(`sum by (instance) (rate(fairlead_requests_by_listener_total[$__rate_interval]))`, "{{instance}}")},
				{Title: "Balanced packets by machine", Kind: Series, Unit: Packets, Description: "Packets from clients that each machine balances in the kernel. No data means that there are no frontends. The dashboard L4 and BGP has more.", Queries: one(`sum by (instance) (rate(fairlead_lb_packets_total[$__rate_interval]))`, "{{instance}}")},
				{Title: "Revisions behind", Kind: Series, Unit: Integer, Steps: doubtful, Description: "How far the revision that a machine's proxy runs is behind the last one that it was sent. It is above 0 for moments after a change.", Queries: one(`fairlead_agent_accepted_revision - fairlead_agent_applied_revision`, "{{instance}}")},
				{Title: "Not connected, not ready or not stored", Kind: Series, Unit: Integer, Steps: bad, Description: "1 for a machine whose agent has no plane, whose proxy is not ready, or whose state cannot be stored on disk. The proxy of a machine that runs none is not ready.", Queries: []Query{
					{`1 - fairlead_agent_plane_connected`, "{{instance}} has no plane"},
					{`1 - fairlead_agent_proxy_ready`, "{{instance}} has no proxy"},
					{`fairlead_agent_remember_failing`, "{{instance}} cannot store"},
				}},
			}},
		},
	}
}

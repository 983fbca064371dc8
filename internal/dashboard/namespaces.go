package dashboard

// namespaces: for the teams whose routes they are.
func namespaces() Dashboard {
	const of = `{namespace=~"$namespace"}`
	return Dashboard{
		Name: "namespaces", Title: "Fairlead / Namespaces", Description: "What the routes of a namespace do: requests, errors, latency, bytes. For the team that owns them.",
		Variables: []Variable{namespaceVariable},
		Rows: []Row{
			{"Requests and errors", []Panel{
				{Title: "Requests", Kind: Series, Unit: Requests, Description: "Requests that proxies answer a second, by the namespace of the route's owner. The name other stands for namespaces beyond the bound, (none) for requests that no route matches.", Queries: one(`sum by (namespace) (rate(fairlead_requests_by_namespace_total`+of+`[$__rate_interval]))`, "{{namespace}}")},
				{Title: "Requests by class of the status", Kind: Stacked, Unit: Requests, Coloured: true, Description: "The same by class of the status. The class none counts clients that left before an answer.", Queries: one(`sum by (class) (rate(fairlead_requests_by_namespace_total`+of+`[$__rate_interval]))`, "{{class}}")},
				{Title: "Share of errors", Kind: Series, Unit: Share, Steps: []Step{{0.05, red}}, Description: "Share of 5xx among a namespace's requests. 0 also while it has had no 5xx.", Queries: one(`sum by (namespace) (rate(fairlead_requests_by_namespace_total{namespace=~"$namespace",class="5xx"}[$__rate_interval])) / sum by (namespace) (rate(fairlead_requests_by_namespace_total`+of+`[$__rate_interval])) or sum by (namespace) (rate(fairlead_requests_by_namespace_total`+of+`[$__rate_interval])) * 0`, "{{namespace}}")},
				{Title: "Retries and resets", Kind: Series, Unit: PerSecond, Description: "Requests that a proxy sent once more, and requests that the proxy or the backend reset. No data means that there was none yet.", Queries: []Query{
					{`sum by (namespace) (rate(fairlead_retries_by_namespace_total` + of + `[$__rate_interval]))`, "{{namespace}} retries"},
					{`sum by (namespace) (rate(fairlead_resets_by_namespace_total` + of + `[$__rate_interval]))`, "{{namespace}} resets"},
				}},
			}},
			{"Latency and bytes", []Panel{
				{Title: "Time to answer", Kind: Series, Unit: Seconds, Description: "Time from a request to the end of the backend's answer, each try by itself: the time within which a share of the answers comes. No data means that no request has come yet.", Queries: quantiles("fairlead_request_seconds_by_namespace", of)},
				{Title: "95 % answered within, by namespace", Kind: Series, Unit: Seconds, Description: "The same for each namespace. No data means that no request has come yet.", Queries: one(`histogram_quantile(0.95, sum by (le, namespace) (rate(fairlead_request_seconds_by_namespace_bucket`+of+`[$__rate_interval])))`, "{{namespace}}")},
				{Title: "Received", Kind: Series, Unit: BytesPerSec, Description: "Bytes of requests, as sent to backends. No data means that no request has come yet.", Queries: one(`sum by (namespace) (rate(fairlead_received_bytes_by_namespace_total`+of+`[$__rate_interval]))`, "{{namespace}}")},
				{Title: "Sent", Kind: Series, Unit: BytesPerSec, Description: "Bytes of answers, as received from backends. No data means that no request has come yet.", Queries: one(`sum by (namespace) (rate(fairlead_sent_bytes_by_namespace_total`+of+`[$__rate_interval]))`, "{{namespace}}")},
			}},
		},
	}
}

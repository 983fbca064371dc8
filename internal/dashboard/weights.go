package dashboard

// weights: what new work is shared among. There are no series of single weights.
func weights() Dashboard {
	const of = `{instance=~"$instance"}`
	return Dashboard{
		Name: "weights", Title: "Fairlead / Weights", Description: "Which backends get new work? Health and balance; the weight of each backend is shown by fairlead backends, for there is no series of it.",
		Variables: []Variable{machineVariable},
		Rows: []Row{
			{"Which backends get new work?", []Panel{
				{Title: "Checks by verdict", Kind: Series, Unit: Integer, Coloured: true, Description: "Backends by the verdict of the majority of their checkers. fairlead backends has each one.", Queries: one(`max by (health) (fairlead_plane_checks and on (instance) fairlead_plane_leading == 1)`, "{{health}}")},
				{Title: "Backends of frontends", Kind: Series, Unit: Integer, Description: "Backends of all frontends, by whether they accept new flows. 0 without frontends.", Queries: one(`max by (state) (fairlead_plane_frontend_backends and on (instance) fairlead_plane_leading == 1)`, "{{state}}")},
				{Title: "Fewest available backends", Kind: Series, Unit: Integer, Falling: true, Steps: []Step{{1, orange}, {2, green}}, Description: "Backends that accept new flows, for the ten frontends with the fewest. No data means that there are no frontends.", Queries: one(`bottomk(10, min by (frontend) (fairlead_lb_available_backends`+of+`))`, "{{frontend}}")},
				{Title: "Ignored, ejected, unchecked", Kind: Series, Unit: Integer, Steps: doubtful, Description: "Frontends in panic, which ignore health; backends that a proxy has ejected because requests fail; default checks that are left out because there are too many.", Queries: []Query{
					{`max(fairlead_plane_frontends_panicking and on (instance) fairlead_plane_leading == 1)`, "frontends in panic"},
					{`max(fairlead_plane_ejected_backends and on (instance) fairlead_plane_leading == 1)`, "ejected backends"},
					{`max(fairlead_plane_checks_left_out and on (instance) fairlead_plane_leading == 1)`, "checks left out"},
				}},
			}},
			{"What do backends answer?", []Panel{
				{Title: "Requests by backend", Kind: Series, Unit: Requests, Description: "Requests sent to a backend a second, tries included, for the twenty with the most. No data means that no Service asks for it, by the annotation fairlead.dev/metrics: backend.", Queries: one(`topk(20, sum by (group, backend) (rate(fairlead_tries_by_backend_total`+of+`[$__rate_interval])))`, "{{group}} {{backend}}")},
				{Title: "Errors by backend", Kind: Series, Unit: PerSecond, Description: "Requests a second that a backend answered 5xx, or not at all, for the twenty with the most. No data means that no Service asks for it.", Queries: one(`topk(20, sum by (group, backend) (rate(fairlead_requests_by_backend_total{class="error",instance=~"$instance"}[$__rate_interval])))`, "{{group}} {{backend}}")},
				{Title: "Requests in flight by backend", Kind: Series, Unit: Integer, Description: "Requests that a backend has not ended, for the twenty with the most. No data means that no Service asks for it.", Queries: one(`topk(20, sum by (group, backend) (fairlead_requests_in_flight_by_backend`+of+`))`, "{{group}} {{backend}}")},
				{Title: "Time until the first byte", Kind: Series, Unit: Seconds, Description: "Mean time from a request to the first byte of the answer, for the twenty slowest backends. No data means that no Service asks for it, or that none has answered.", Queries: one(`topk(20, sum by (group, backend) (rate(fairlead_first_byte_seconds_by_backend_sum`+of+`[$__rate_interval])) / sum by (group, backend) (rate(fairlead_first_byte_seconds_by_backend_count`+of+`[$__rate_interval])))`, "{{group}} {{backend}}")},
			}},
			{"How sure is that?", []Panel{
				{Title: "Changed verdicts", Kind: Series, Unit: Integer, Description: "Verdicts that changed within ten minutes, by the new verdict. Many are backends that flap. No data means that none has changed since the plane started.", Queries: one(`sum by (health) (increase(fairlead_plane_check_verdicts_total[10m]))`, "{{health}}")},
				{Title: "Probes by result", Kind: Series, Unit: PerSecond, Description: "Finished probes a second, by their result. Everything but good names the kind of failure.", Queries: one(`sum by (result) (rate(fairlead_agent_check_probes_total`+of+`[$__rate_interval]))`, "{{result}}")},
				{Title: "Time of probes", Kind: Series, Unit: Seconds, Description: "Time within which 99 % of the probes of a kind end.", Queries: one(`histogram_quantile(0.99, sum by (le, kind) (rate(fairlead_agent_check_probe_seconds_bucket`+of+`[$__rate_interval])))`, "{{kind}}")},
				{Title: "Unhealthy by a machine's own probes", Kind: Series, Unit: Integer, Description: "Backends that a machine finds unhealthy by its own probes. A machine that differs from the others has no way to them.", Queries: one(`fairlead_agent_checks{health="unhealthy",instance=~"$instance"}`, "{{instance}}")},
			}},
		},
	}
}

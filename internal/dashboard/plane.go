package dashboard

// plane: from the API to the machines.
func plane() Dashboard {
	quick := func(metric string) Query {
		return Query{`histogram_quantile(0.99, sum by (le) (rate(` + metric + `_bucket[$__rate_interval])))`, ""}
	}
	named := func(q Query, legend string) Query { return Query{q.Expr, legend} }
	return Dashboard{
		Name: "plane", Title: "Fairlead / Plane", Description: "Who leads, how fast does a change reach the machines, and is what people wrote accepted?",
		Rows: []Row{
			{"Who leads?", []Panel{
				{Title: "Leading", Kind: Series, Unit: Integer, Description: "1 for the plane that leads, 0 for a standby.", Queries: one(`fairlead_plane_leading`, "{{instance}}")},
				{Title: "Epoch", Kind: Series, Unit: Integer, Description: "Number of the last leadership; each step is a new leader.", Queries: one(`max(fairlead_plane_epoch)`, "epoch")},
				{Title: "Kinds that the API does not answer for", Kind: Series, Unit: Integer, Steps: bad, Description: "Kinds of resources that cannot be read at the moment. Their last known objects stay in effect.", Queries: one(`max(fairlead_plane_source_kinds_failing and on (instance) fairlead_plane_leading == 1)`, "kinds")},
				{Title: "Memory", Kind: Series, Unit: Bytes, Description: "Resident memory of each plane, the embedded API included.", Queries: one(`process_resident_memory_bytes and on (instance) fairlead_plane_epoch`, "{{instance}}")},
			}},
			{"How fast does a change reach the machines?", []Panel{
				{Title: "Changes", Kind: Series, Unit: PerSecond, Description: "Changed objects received from the API a second, and revisions published.", Queries: []Query{
					{`sum(rate(fairlead_plane_changes_total[$__rate_interval]))`, "changed objects"},
					{`sum(rate(fairlead_plane_resources_built_total[$__rate_interval]))`, "resources built"},
				}},
				{Title: "99 % within", Kind: Series, Unit: Seconds, Description: "Time to translate a batch of changes, to publish it, and until a machine concerned runs it. No data means that nothing has changed lately.", Queries: []Query{
					named(quick("fairlead_plane_translate_seconds"), "translated"), named(quick("fairlead_plane_publish_seconds"), "published"), named(quick("fairlead_plane_applied_seconds"), "run by a machine"),
				}},
				{Title: "Machines by state", Kind: Stacked, Unit: Integer, Coloured: true, Description: "Machines as the leading plane sees them; fairlead status names them.", Queries: one(`max by (state) (fairlead_plane_machines and on (instance) fairlead_plane_leading == 1)`, "{{state}}")},
				{Title: "Answers that occupy the loop", Kind: Series, Unit: Seconds, Description: "Time for which 99 % of the answers to consoles and commands occupy the plane's loop. No data means that nobody has asked lately.", Queries: []Query{named(quick("fairlead_plane_answer_seconds"), "99 % within")}},
			}},
			{"Is what people wrote accepted?", []Panel{
				{Title: "Objects that are not well", Kind: Series, Unit: Integer, Description: "Objects by kind and state, without those that are well. fairlead routes and fairlead status name them. No data means that all are well.", Queries: one(`max by (kind, state) (fairlead_plane_objects{state!="programmed"} and on (instance) fairlead_plane_leading == 1) > 0`, "{{kind}} {{state}}")},
				{Title: "Certificates", Kind: Series, Unit: Integer, Coloured: true, Description: "Certificates in use, by state.", Queries: one(`max by (state) (fairlead_plane_certificates and on (instance) fairlead_plane_leading == 1)`, "{{state}}")},
				{Title: "Statuses that wait", Kind: Series, Unit: Integer, Description: "Statuses that wait to be written, and writes that the API has not answered yet.", Queries: []Query{
					{`max(fairlead_plane_status_writes_queued)`, "waiting"}, {`max(fairlead_plane_status_writes_under_way)`, "under way"},
				}},
				{Title: "Status writes by result", Kind: Series, Unit: PerSecond, Description: "Writes of statuses a second, by their result. No data means that nothing has been written since the plane started.", Queries: one(`sum by (result) (rate(fairlead_plane_status_writes_total[$__rate_interval]))`, "{{result}}")},
			}},
		},
	}
}

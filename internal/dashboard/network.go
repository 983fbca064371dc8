package dashboard

// network: VIPs, sessions with routers, and what the kernel balances.
func network() Dashboard {
	const of = `{instance=~"$instance"}`
	return Dashboard{
		Name: "l4-bgp", Title: "Fairlead / L4 and BGP", Description: "Do routers reach the VIPs, and what does the kernel balance or drop?",
		Variables: []Variable{machineVariable},
		Rows: []Row{
			{"Do routers reach the VIPs?", []Panel{
				{Title: "Sessions", Kind: Series, Unit: Integer, Description: "1 while the BGP session of a machine with a peer is established. No data means that there is no BGPPeer.", Queries: one(`fairlead_agent_bgp_session_established`+of, "{{instance}} to {{peer}}")},
				{Title: "Lost sessions", Kind: Series, Unit: Integer, Steps: doubtful, Description: "Losses of established sessions within an hour. No data means that there is no BGPPeer.", Queries: one(`increase(fairlead_agent_bgp_session_flaps_total`+of+`[1h])`, "{{instance}} to {{peer}}")},
				{Title: "Prefixes sent", Kind: Series, Unit: Integer, Description: "Prefixes that a machine announces to a peer. Machines of one pool should be alike. No data means that there is no BGPPeer.", Queries: one(`fairlead_agent_bgp_advertised_prefixes`+of, "{{instance}} to {{peer}}")},
				{Title: "VIPs at machines", Kind: Series, Unit: Integer, Description: "VIPs that machines may announce, by state. A withheld VIP is not announced at that machine; fairlead status says why.", Queries: one(`sum by (state) (fairlead_agent_vips`+of+`)`, "{{state}}")},
			}},
			{"What does the kernel balance?", []Panel{
				{Title: "Packets by frontend", Kind: Series, Unit: Packets, Description: "Packets from clients a second, for the twenty frontends with the most. No data means that there are no frontends.", Queries: one(`topk(20, sum by (frontend) (rate(fairlead_lb_packets_total`+of+`[$__rate_interval])))`, "{{frontend}}")},
				{Title: "Bytes by frontend", Kind: Series, Unit: BytesPerSec, Description: "Bytes from clients a second, for the twenty frontends with the most. No data means that there are no frontends.", Queries: one(`topk(20, sum by (frontend) (rate(fairlead_lb_bytes_total`+of+`[$__rate_interval])))`, "{{frontend}}")},
				{Title: "New flows by frontend", Kind: Series, Unit: PerSecond, Description: "Flows that begin a second, for the twenty frontends with the most. No data means that there are no frontends.", Queries: one(`topk(20, sum by (frontend) (rate(fairlead_lb_new_flows_total`+of+`[$__rate_interval])))`, "{{frontend}}")},
				{Title: "Flows by frontend", Kind: Series, Unit: Integer, Description: "Flows in the flow tables now, for the twenty frontends with the most. One that ended unseen counts until it is silent for too long. No data means that there are no frontends.", Queries: one(`topk(20, sum by (frontend) (fairlead_lb_flows`+of+`))`, "{{frontend}}")},
				{Title: "Dropped packets by reason", Kind: Series, Unit: Packets, Steps: doubtful, Description: "Packets that a data plane drops a second. At a machine, fairlead drops shows the packets. No data means that no data plane runs.", Queries: one(`sum by (reason) (rate(fairlead_lb_dropped_packets_total`+of+`[$__rate_interval]))`, "{{reason}}")},
				{Title: "Frontends at machines", Kind: Series, Unit: Integer, Description: "Frontends by state. A refused one is not served at that machine; fairlead status says why.", Queries: one(`sum by (state) (fairlead_lb_frontends`+of+`)`, "{{state}}")},
				{Title: "Kernel memory of the tables", Kind: Series, Unit: Bytes, Description: "Kernel memory of a data plane's maps. No data means that no data plane with maps runs, or that it has no frontends.", Queries: one(`sum by (instance, data_plane) (fairlead_lb_map_bytes`+of+`)`, "{{instance}} {{data_plane}}")},
			}},
		},
	}
}

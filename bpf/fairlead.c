/* All programs, compiled as one object so that they share their maps. */
#include "lb/lb.c"
#include "demux.c"

char _license[] SEC("license") = "GPL";

/* Types that no map names, for bpf2go. */
const struct capture *export_capture __attribute__((unused));
const struct hop_option *export_hop_option __attribute__((unused));
const enum reason *export_reason __attribute__((unused));
const enum mode *export_mode __attribute__((unused));
const enum frontend_flag *export_frontend_flag __attribute__((unused));
const enum backend_flag *export_backend_flag __attribute__((unused));
const enum next_hop_flag *export_next_hop_flag __attribute__((unused));
const enum flow_hash *export_flow_hash __attribute__((unused));
const enum flow_state *export_flow_state __attribute__((unused));
const struct flow_event *export_flow_event __attribute__((unused));
const enum flow_event_kind *export_flow_event_kind __attribute__((unused));
const enum flow_reason *export_flow_reason __attribute__((unused));
const enum hop_flag *export_hop_flag __attribute__((unused));

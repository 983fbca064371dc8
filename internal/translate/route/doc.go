// Package route compiles the routes of the Gateway API. HTTPRoutes and GRPCRoutes become entries of
// virtual hosts; TLSRoutes, TCPRoutes and UDPRoutes become candidates for server names and ports.
//
// Read the files in this order; each calls only later ones:
//   - route.go: the tables, and one HTTPRoute or GRPCRoute compiled for itself
//   - stream.go: the same of a TLSRoute, TCPRoute or UDPRoute
//   - httprule.go, grpcrule.go: the rules and matches of the two kinds
//   - rule.go: what rules of both kinds have in common, from which their entries come
//   - filter.go, ruleoption.go: the filters and options of a rule
//   - backendref.go: the Service, port and group of a reference
//   - match.go: values and expressions of matches
//   - compiler.go: what all parts use to report problems
package route

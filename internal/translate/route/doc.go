// Package route compiles the routes of the Gateway API. HTTPRoutes and GRPCRoutes become entries of
// virtual hosts; TLSRoutes, TCPRoutes and UDPRoutes become candidates for server names and ports.
package route

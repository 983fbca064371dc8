// Package backend turns Services into backends. A route names a Service and a port; this room
// finds the port, says why it cannot be used, and makes the model's groups (how requests are sent to
// its backends: protocol, TLS, limits, balancing, health checks) and sets (the addresses of the
// EndpointSlices). Only groups and sets that something uses are made.
package backend

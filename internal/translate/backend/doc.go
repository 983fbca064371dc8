// Package backend turns Services into backends. A route names a Service and a port; this room
// finds the port, says why it cannot be used, and makes the model's groups (how requests are sent to
// its backends: protocol, TLS, limits, balancing, health checks) and sets (the addresses of the
// EndpointSlices). Only groups and sets that something uses are made.
//
// Files in reading order: service.go (the tables), annotation.go, rating.go (weights and backups), refusal.go, allowance.go (endpoints
// that are refused and allowed), group.go, policy.go, tls.go, port.go.
package backend

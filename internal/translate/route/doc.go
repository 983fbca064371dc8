// Package route compiles the routes of Gateways.
package route

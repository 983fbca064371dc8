// Package host decides who has a virtual host, a server name or a port, and orders the routes of a
// host.
package host

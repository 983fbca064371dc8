// Package certificate parses TLS Secrets and the CA certificates of ConfigMaps and Secrets, and
// hands to the model the ones that a listener, a server name or a backend uses.
package certificate

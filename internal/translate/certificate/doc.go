// Package certificate reads the certificates and CA certificates of Secrets and ConfigMaps, and
// knows which are used.
package certificate

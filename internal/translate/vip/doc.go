// Package vip assigns the addresses of AddressPools to Gateways, Services and root IngressRoutes. An
// owner keeps a recorded address as long as its pool holds it (ADR 14).
package vip

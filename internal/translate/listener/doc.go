// Package listener makes the listeners of proxies, with how clients are treated there, and the
// views of machines.
package listener

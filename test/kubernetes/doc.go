// Package kubernetes holds the tests of what is in deploy: the chart and the manifests
// made of it, what they allow the plane, and a whole installation on two real nodes.
package kubernetes

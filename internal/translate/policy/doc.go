// Package policy judges policies, each for itself.
package policy

// Package condition collects the problems of a resource, and writes the conditions of its status.
//
// Files in reading order: condition.go, reason.go.
package condition

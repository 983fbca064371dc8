// Package condition collects the problems of a resource, and writes the conditions of its status.
package condition

// Package condition collects what is wrong with a resource, and writes conditions.
package condition

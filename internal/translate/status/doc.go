// Package status writes the statuses of all resources, once it is known who has what.
package status

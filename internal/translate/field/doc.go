// Package field reads fields of resources: what texts may be, and how messages name them.
package field

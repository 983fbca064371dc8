// Package contour compiles IngressRoutes: trees of delegations below roots.
package contour

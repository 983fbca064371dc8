// Package backend is Services as routes see them: their ports, the groups of backends that are
// used, and the sets of these.
package backend

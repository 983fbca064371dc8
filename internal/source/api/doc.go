// Package apisource follows the resources of the plane's own Kubernetes API: every
// kind of a snapshot, as a stream of batches of changes.
//
// It lists and watches; it never writes. It refuses to take a fault for a
// deletion: a broken watch, an API that is away and a kind that the API does not
// serve remove nothing, and a kind that is suddenly empty is asked for again
// before its objects go. A kind that the API does not serve yet, by its own list of
// what it serves, is waited for and does not hold up the others.
//
// An API keeps what was stored under an older definition, so one object may not be
// readable. Of the kinds of Contour, whose definitions checked little, values that do
// not fit are left out, and the object says which (lenient.go). An object of another
// kind is left out, or stays as it was, and Unreadable names it (tolerant.go).
//
// Invariant: whoever applies every batch in order holds, for each kind, what the
// API's last complete list and the watch after it said. Objects are shared and
// must not be changed; their managedFields are dropped. Of Secrets and
// ConfigMaps goes on what snapshot.Trim and snapshot.TrimConfigMap leave.
package apisource

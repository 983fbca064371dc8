// Package kube follows the resources of a Kubernetes API: every kind of a
// snapshot, as a stream of batches of changes.
//
// It lists and watches; it never writes. It refuses to take a fault for a
// deletion: a broken watch, an API that is away and a kind that the API does not
// serve remove nothing, and a kind that is suddenly empty is asked for again
// before its objects go. A kind that the API does not serve yet, by its own list of
// what it serves, is waited for and does not hold up the others.
//
// Invariant: whoever applies every batch in order holds, for each kind, what the
// API's last complete list and the watch after it said. Objects are shared and
// must not be changed; their managedFields are dropped. Of Secrets and
// ConfigMaps goes on what snapshot.Trim and snapshot.TrimConfigMap leave.
package kube

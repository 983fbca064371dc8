// Package derive maintains objects in the API that follow from other objects: a
// ServiceAccount from a Gateway, a ConfigMap from the agents' authorities. Apply writes
// one object, a Writer any number of them, in the background.
//
// It changes only the fields that an object's Merge sets, and it refuses to
// change an object of another owner. A created object has the owner reference
// of its Owner, if it has one, so the cluster deletes both together. Discovered
// objects have no Owner: Ours says which live objects may be changed, and they
// are Watched, so that a Writer does not have to remember all of them.
//
// It reads an object and then creates or updates it, by its resource version. Server-side
// apply would need one request instead of two, but it needs the right to patch, which no installation
// grants, and it would keep the fields that earlier versions wrote as another field manager.
//
// Invariant: a Writer writes only during a term, only differences, and at a bounded rate. No kind
// of object waits for another one.
package derive

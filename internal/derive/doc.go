// Package derive keeps objects in the API that follow from something else: a
// ServiceAccount from a Gateway, a ConfigMap from the agents' authorities. Apply brings
// about one object, a Writer any number of them, in the background.
//
// It changes the fields that an object's Merge sets and no others, and it refuses to
// change an object that belongs to somebody else. What it creates has the owner reference
// of its origin, so the cluster deletes both together.
//
// It reads an object and then creates or updates it, by its resource version. Server-side
// apply would do that in one request, but needs the right to patch, which no installation
// gives, and leaves behind what earlier versions wrote as another field manager.
//
// Invariant: a Writer writes while a term lasts, differences only, at a bounded rate. No kind
// of object waits for another one.
package derive

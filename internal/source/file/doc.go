// Package file reads manifests from files, directories and standard input into a
// snapshot, so that a translation can be tried without an API server.
//
// It is stricter than an API server where a mistake would pass in silence: an
// unknown field, a key twice, an object twice, a value of another type are said, each with its file and
// line. All of them are, not only the first. The field or the object is left out, and the rest is read; of an
// object that stands twice the last counts, as with `kubectl apply`. It does not apply the
// defaults and the validation of schemas; translation bears their absence.
// Documents of kinds that a snapshot does not hold are skipped with a warning.
//
// Invariant: the same files give the same snapshot, warnings and errors.
package file

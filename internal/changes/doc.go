// Package changes keeps the last changes of objects in the API: who changed which fields, by which revision machines were
// sent that, and when each machine had it.
//
// It does no I/O and reads no clock. It knows objects as maps of JSON and no kind of them; what is worth an entry is its
// caller's to decide. It never holds data of Secrets or ConfigMaps, nor values of headers that are credentials.
//
// Invariant: a Log holds at most MaxEntries entries and about as many bytes as it was told, the newest ones, and what Read
// makes of the records that it gave is what it holds.
package changes

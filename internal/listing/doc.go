// Package listing keeps a list of rows in blocks, and what changed in it, so that those who watch the list are told changes only. It is
// pure; who shares a List between goroutines guards it.
package listing

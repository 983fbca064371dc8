package model

import (
	"fmt"
	"slices"
	"strings"
)

// listed is how many names a message has at most.
const listed = 8

// List sorts the names and joins them for a message: a few, and the number of the others.
func List(names []string, separator string) string {
	slices.Sort(names)
	if more := len(names) - listed; more > 0 {
		return strings.Join(names[:listed], separator) + fmt.Sprintf("%sand %d more", separator, more)
	}
	return strings.Join(names, separator)
}

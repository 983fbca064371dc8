package mirror

import (
	"maps"
	"slices"
	"strings"

	"fairlead.dev/api/v1alpha1"
)

// annotationCopied names the labels and annotations that a Service has of its service in the upstream: "label,label;annotation".
// They go when the upstream has them no more; those that others have added stay.
const annotationCopied = "fairlead.dev/upstream-copied"

// noteCopied writes that annotation. No key has a comma or a semicolon.
func noteCopied(labels, annotations map[string]string) string {
	keys := func(m map[string]string) string { return strings.Join(slices.Sorted(maps.Keys(m)), ",") }
	return keys(labels) + ";" + keys(annotations)
}

// asStored are the annotations of a Service that was stored, with the note that it has; the note is empty if it has none.
// Sources give none, for it is made anew of what they give.
func asStored(annotations map[string]string) map[string]string {
	all := maps.Clone(annotations)
	if all == nil {
		all = map[string]string{}
	}
	all[annotationCopied] = annotations[annotationCopied]
	delete(all, v1alpha1.AnnotationChangedBy) // the API's: it would write over ours again and again
	return all
}

// copied reads it.
func copied(annotations map[string]string) (labels, more []string) {
	a, b, _ := strings.Cut(annotations[annotationCopied], ";")
	split := func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, ",")
	}
	return split(a), split(b)
}

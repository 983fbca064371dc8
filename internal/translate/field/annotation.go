package field

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/near"
)

// unknownLimit is how many annotations that nothing reads are named.
const unknownLimit = 5

// findUnknown are those in our domain that nothing reads: the first unknownLimit, sorted,
// and how many more there are. The API's own is of every object.
func findUnknown(annotations map[string]string, known []string) (names []string, more int) {
	for name := range annotations {
		if !strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/") || name == v1alpha1.AnnotationChangedBy || slices.Contains(known, name) {
			continue
		}
		i, _ := slices.BinarySearch(names, name)
		if names = slices.Insert(names, i, name); len(names) > unknownLimit {
			names, more = names[:unknownLimit], more+1
		}
	}
	return names, more
}

// UnknownAnnotations name annotations in our domain that nothing reads, with those that may have been
// meant.
func UnknownAnnotations(annotations map[string]string, known ...string) (notes []string) {
	names, more := findUnknown(annotations, known)
	for _, name := range names {
		notes = append(notes, unknownNote(name, known))
	}
	return append(notes, moreUnknown(more)...)
}

func unknownNote(name string, known []string) string {
	text := "metadata.annotations[" + name + "]: nothing reads it"
	if len(known) == 0 {
		return text
	}
	return text + cmp.Or(near.DidYouMean(name, known), "; known are "+strings.Join(known, ", "))
}

// moreUnknown counts those that are not named, if there are any.
func moreUnknown(more int) []string {
	if more == 0 {
		return nil
	}
	return []string{"metadata.annotations: nothing reads " + strconv.Itoa(more) + " more of " + v1alpha1.GroupVersion.Group}
}

// Measured says whether annotations ask for metrics of a route of its own.
func Measured(annotations map[string]string) bool {
	return annotations[v1alpha1.AnnotationMetrics] == v1alpha1.MetricsOfRoute
}

// MeasuredBackends says whether annotations of a Service ask for metrics of each of its backends.
func MeasuredBackends(annotations map[string]string) bool {
	return annotations[v1alpha1.AnnotationMetrics] == v1alpha1.MetricsOfBackend
}

// MeasuredNote says that the value of the annotation that asks for metrics is not the one that a kind has
// (MetricsOfRoute or MetricsOfBackend); empty if it is, or if the annotation is absent.
func MeasuredNote(annotations map[string]string, value string) string {
	text, is := annotations[v1alpha1.AnnotationMetrics]
	if !is || text == value {
		return ""
	}
	return "metadata.annotations[" + v1alpha1.AnnotationMetrics + "]: " + Quote(text) + " is ignored" + cmp.Or(near.DidYouMean(text, []string{value}), "; the value here is "+value)
}

// RouteNotes are UnknownAnnotations of a route that may ask for metrics of its own, and what is wrong with how it asks.
func RouteNotes(annotations map[string]string, known ...string) []string {
	known = append(slices.Clone(known), v1alpha1.AnnotationMetrics)
	return append(NonEmpty(MeasuredNote(annotations, v1alpha1.MetricsOfRoute)), UnknownAnnotations(annotations, known...)...)
}

// GatewayNotes are UnknownAnnotations of a Gateway, which asks for addresses in a field.
func GatewayNotes(annotations map[string]string) (notes []string) {
	known := []string{v1alpha1.AnnotationPool, v1alpha1.AnnotationHosts}
	names, more := findUnknown(annotations, known)
	for _, name := range names {
		if name == v1alpha1.AnnotationAddresses || slices.Contains(near.Names(name, []string{v1alpha1.AnnotationPool, v1alpha1.AnnotationAddresses}), v1alpha1.AnnotationAddresses) {
			notes = append(notes, "metadata.annotations["+name+"]: a Gateway asks for addresses in spec.addresses")
		} else {
			notes = append(notes, unknownNote(name, known))
		}
	}
	return append(notes, moreUnknown(more)...)
}

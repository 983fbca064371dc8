package v1alpha1

// AnnotationChangedBy is the annotation in which the API says which of its users changed an object last. Its admission
// writes it, over whatever a client sends.
const AnnotationChangedBy = "fairlead.dev/changed-by"

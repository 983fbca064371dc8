package v1alpha1

// Policies are attached the Gateway API's way (GEP-713): targetRefs name objects of the
// policy's own namespace, or parts of them, and status.ancestors has one entry for each.
// Of two policies of a kind with the same target the older one holds, and the other is
// Conflicted.

// Conditions of an ancestor of a policy are Accepted and ConditionResolvedRefs. Their
// reasons are those of the Gateway API, with these besides.
const (
	// ReasonTargetNotPermitted says that a policy may not have the target: one that
	// everybody shares is the operator's.
	ReasonTargetNotPermitted = "TargetNotPermitted"
	// ReasonSharedListener says that the target has no listener of its own, so nothing can
	// be said of connections to it alone.
	ReasonSharedListener = "SharedListener"
)

// ConditionResolvedRefs is true of a policy all of whose references are resolved.
const ConditionResolvedRefs = "ResolvedRefs"

package v1alpha1

// Policies attach as in the Gateway API (GEP-713). targetRefs name objects of the policy's
// namespace or sections of them, and status.ancestors has an entry for each target. If two
// policies of a kind have the same target, the older one applies and the newer one is
// Conflicted.

// The conditions of a policy's ancestor are Accepted and ConditionResolvedRefs. Their reasons
// are those of the Gateway API and the following ones.
const (
	// ReasonTargetNotPermitted says that the policy may not have this target. Only operators
	// may target what all teams share.
	ReasonTargetNotPermitted = "TargetNotPermitted"
	// ReasonSharedListener says that the target has no listener of its own, so that its
	// connections cannot be configured separately.
	ReasonSharedListener = "SharedListener"
)

// ConditionResolvedRefs is true of a policy whose references are all resolved.
const ConditionResolvedRefs = "ResolvedRefs"

package kube

// Limits of what one object may have. An API server that checks what it stores has none beyond the first four.
const (
	maxSliceEndpoints = 1000
	maxSlicePorts     = 100
	maxServicePorts   = 1000
	maxZoneHints      = 8

	// Labels and annotations are given in the order of their names, as long as these limits allow.
	maxLabels          = 64
	maxAnnotations     = 64
	maxAnnotationValue = 4 << 10
	maxAnnotationBytes = 16 << 10

	// maxRefusals bounds what is said about one service with its slices. Of the others the number is said.
	maxRefusals = 16
)

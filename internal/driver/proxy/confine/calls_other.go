//go:build !amd64 && !arm64

package confine

const architecture = 0

var refusedHere []uint32

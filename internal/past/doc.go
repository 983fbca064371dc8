// Package past packs steps of a state so small that many can be kept: of each value
// that a step changed, the bytes that differ, and both of them, so that a state can be
// followed forward from an old base and turned back from the newest state.
//
// It knows nothing of what values mean; a value is bytes under a key, and nil is none. It
// does no input or output. A step is applied only to the very value that it was made
// from: checksums of both are in it, and any other value is an error.
package past

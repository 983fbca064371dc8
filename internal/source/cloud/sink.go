package cloud

import "fairlead.dev/internal/model"

// Sink takes what a source reads of one upstream, in the order in which it was read. Its methods return at once. Nobody
// changes a service that was given.
type Sink interface {
	// Replace gives a complete list: what it does not have is gone in the upstream.
	Replace(services []*model.UpstreamService)
	// Put gives services, each whole.
	Put(services ...*model.UpstreamService)
	// Remove says that the upstream has said of services that they are gone.
	Remove(keys ...model.UpstreamKey)
	// Contact says that the upstream answered (nil), or why it does not.
	Contact(err error)
}

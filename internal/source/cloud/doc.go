// Package cloud has what the sources of upstreams share: the Sink to which they give what they read, the classes of
// their errors, and an HTTP transport that no API can keep waiting or fill the memory of.
//
// It knows no API. Nothing here decides what an upstream's silence means.
package cloud

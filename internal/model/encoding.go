package model

import "slices"

// CompressionAlgorithm is a coding of content, by its name in HTTP.
type CompressionAlgorithm string

// The codings of RFC 1952, RFC 7932 and RFC 8878.
const (
	CompressionGzip   CompressionAlgorithm = "gzip"
	CompressionBrotli CompressionAlgorithm = "br"
	CompressionZstd   CompressionAlgorithm = "zstd"
)

// Compression encodes answers for clients that accept it.
type Compression struct {
	// Algorithms, each once, the preferred ones first; none says that answers stay as they are.
	Algorithms []CompressionAlgorithm `json:"algorithms"`
	// MinBytes of an answer that says its length; shorter ones stay as they are.
	MinBytes uint32 `json:"minBytes,omitempty"`
	// ContentTypes without parameters, lower case; none is the usual ones.
	ContentTypes []string `json:"contentTypes,omitempty"`
}

// Types are the content types that are compressed.
func (c *Compression) Types() []string {
	if len(c.ContentTypes) > 0 {
		return c.ContentTypes
	}
	return []string{
		"application/javascript", "application/json", "application/manifest+json", "application/xhtml+xml", "application/xml",
		"image/svg+xml", "text/css", "text/csv", "text/html", "text/javascript", "text/markdown", "text/plain", "text/xml",
	}
}

// UsualCompression is what a policy asks that says nothing of how. zstd is not in it: it delays
// what is streamed (Envoy 1.40).
func UsualCompression() *Compression {
	return &Compression{Algorithms: []CompressionAlgorithm{CompressionBrotli, CompressionGzip}, MinBytes: 30}
}

// ContourEncoding is how Contour 0.15 encoded the answers of all routes: by Envoy's filters for
// gzip and gRPC-Web, with their defaults.
func ContourEncoding() *RoutePolicy {
	is := true
	return &RoutePolicy{Compression: &Compression{Algorithms: []CompressionAlgorithm{CompressionGzip}, MinBytes: 30}, GRPCWeb: &is}
}

// SameEncoding reports whether two policies say the same of compression and gRPC-Web.
func SameEncoding(p, q *RoutePolicy) bool {
	a, b := p.Compression, q.Compression
	if (a == nil) != (b == nil) || (p.GRPCWeb == nil) != (q.GRPCWeb == nil) || p.GRPCWeb != nil && *p.GRPCWeb != *q.GRPCWeb {
		return false
	}
	return a == nil || slices.Equal(a.Algorithms, b.Algorithms) && a.MinBytes == b.MinBytes && slices.Equal(a.ContentTypes, b.ContentTypes)
}

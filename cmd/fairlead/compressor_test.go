package main

import (
	"testing"

	"google.golang.org/grpc/encoding"
)

// TestCompressors holds which compressors of gRPC's are linked in: servers of machines and of Envoy refuse just these, for
// gRPC unpacks by whatever is registered.
func TestCompressors(t *testing.T) {
	for name, want := range map[string]bool{"gzip": true, "snappy": false, "zstd": false, "deflate": false, "br": false, "lz4": false} {
		if has := encoding.GetCompressor(name) != nil; has != want {
			t.Errorf("%s: linked in %t, want %t: see Uncompressed in proto/agent/v1", name, has, want)
		}
	}
}

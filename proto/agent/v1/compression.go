package agentv1

import (
	"errors"
	"io"

	"google.golang.org/grpc"
)

// ErrCompressed is why a message is refused.
var ErrCompressed = errors.New("messages are not compressed here")

// Uncompressed has a server unpack nothing. Libraries register gzip for the whole process, and what a client may send
// would be a thousand times as much to whoever unpacks it; nothing between planes, agents and Envoy is compressed.
func Uncompressed() grpc.ServerOption {
	return grpc.RPCDecompressor(uncompressed{}) //nolint:staticcheck // nothing else keeps gRPC from what the process has registered
}

// uncompressed stands in the place of gzip, the one that is linked in (TestCompressors of cmd).
type uncompressed struct{}

func (uncompressed) Type() string { return "gzip" }

func (uncompressed) Do(io.Reader) ([]byte, error) { return nil, ErrCompressed }

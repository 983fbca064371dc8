package southbound

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDecoded is how much memory a message may take, about, when it is decoded: several times what the largest
// report of an agent does. Two bytes on the wire can be a struct of 300.
const maxDecoded = 64 << 20

// maxNested is how deep messages may be in each other: each level takes stack. Agents' have a handful.
const maxNested = 100

var errLarge = errors.New("the message would need too much memory")

// codec is gRPC's own, but for messages that would take much more memory than they have bytes, and without
// fields that nobody knows, which would be kept with the rest.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal decodes a message that a machine sent.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	left := maxDecoded
	if err := weigh(b.ReadOnlyData(), m.ProtoReflect().Descriptor(), maxNested, &left); err != nil {
		return fmt.Errorf("%s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true, RecursionLimit: 2 * maxNested}.Unmarshal(b.ReadOnlyData(), m)
}

// weigh takes from left what an encoded message will take, about. It may have so many levels below it.
func weigh(b []byte, d protoreflect.MessageDescriptor, levels int, left *int) error {
	if levels == 0 {
		return errLarge
	}
	const header, field = 48, 16 // of a struct, and of a field of it
	if *left -= header + field*d.Fields().Len(); *left < 0 {
		return errLarge
	}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b, *left = b[n:], *left-field
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch f := d.Fields().ByNumber(number); {
		case f == nil:
		case f.Message() != nil:
			if err := weigh(value, f.Message(), levels-1, left); err != nil {
				return err
			}
		case f.IsList() && f.Kind() != protoreflect.StringKind && f.Kind() != protoreflect.BytesKind:
			*left -= 8 * len(value) // packed numbers
		default:
			*left -= field + len(value)
		}
		if *left < 0 {
			return errLarge
		}
	}
	return nil
}

// first is what there is of the first n of a list. Nothing holds the others.
func first[T any](list []T, n int) []T {
	if len(list) <= n {
		return list
	}
	return slices.Clone(list[:max(n, 0)])
}

// raw is an address as bytes, or nothing where it cannot be one.
func raw(address []byte) []byte {
	if len(address) > net.IPv6len {
		return nil
	}
	return address
}

// cut is a text that is no longer than n bytes, and ends with a whole character. Nothing holds the rest.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xc0 == 0x80 {
		n--
	}
	return strings.Clone(text[:n])
}

package xds

import (
	"slices"

	corecncf "github.com/cncf/xds/go/xds/core/v3"
	matcherxds "github.com/cncf/xds/go/xds/type/matcher/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	brotliv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/brotli/compressor/v3"
	gzipv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/gzip/compressor/v3"
	zstdv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/compression/zstd/compressor/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	compressorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/compressor/v3"
	grpcwebv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_web/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
)

// encodingFilter is the filter slot for the encoding of answers. It is before the other slots, so
// that a client of gRPC-Web can read their refusals, too.
const encodingFilter = "fairlead.encoding"

// partialContent is what compression must leave alone: its bytes are counted in the whole.
const partialContent = 206

// usualEncodings are the encodings of many hosts. The listener's slot has their filters under these
// names, and a host has only the name: that is 0.8 KB of Envoy's memory instead of 4.5 and 8.
func usualEncodings() map[string]*model.RoutePolicy {
	return map[string]*model.RoutePolicy{
		"contour":     model.ContourEncoding(),
		"compression": {Compression: model.UsualCompression()},
	}
}

// encodingSlot is the filter slot with the usual encodings.
func encodingSlot() *compositev3.Composite {
	out := &compositev3.Composite{NamedFilterChains: map[string]*compositev3.FilterChainConfiguration{}}
	for name, p := range usualEncodings() {
		out.NamedFilterChains[name] = encoders(p, p.Compression.Algorithms).configuration()
	}
	return out
}

// encoding is the content of the slot for a policy, nil if the policy does not mention encodings. A route
// whose policy turns encodings off has an empty matcher; otherwise the host would fill the slot.
func encoding(p *model.RoutePolicy) *matcherxds.Matcher {
	if p.Compression == nil && p.GRPCWeb == nil {
		return nil
	}
	for name, usual := range usualEncodings() {
		if model.SameEncoding(p, usual) {
			return executes(&compositev3.ExecuteFilterAction{FilterChainName: name})
		}
	}
	var algorithms []model.CompressionAlgorithm
	if p.Compression != nil {
		algorithms = p.Compression.Algorithms
	}
	filters := encoders(p, algorithms)
	if len(filters) == 0 {
		return &matcherxds.Matcher{}
	}
	if len(algorithms) < 3 {
		return filters.always()
	}
	// Envoy 1.40 prefers one algorithm and leaves the order of the others to the client.
	m := encoders(p, algorithms[1:]).always()
	m.MatcherType = &matcherxds.Matcher_MatcherList_{MatcherList: &matcherxds.Matcher_MatcherList{
		Matchers: []*matcherxds.Matcher_MatcherList_FieldMatcher{{Predicate: accepts(algorithms[0]), OnMatch: filters.always().GetOnNoMatch()}},
	}}
	return m
}

// encoders are the filters of a policy, for some of its algorithms.
func encoders(p *model.RoutePolicy, algorithms []model.CompressionAlgorithm) chainOf {
	var out chainOf
	if p.Compression != nil {
		out = compressors(p.Compression, algorithms)
	}
	// Answers pass the last filter first, so what is in gRPC-Web stands last.
	if p.GRPCWeb != nil && *p.GRPCWeb {
		out.add("envoy.filters.http.grpc_web", &grpcwebv3.GrpcWeb{})
	}
	return out
}

// accepts matches requests of clients that name an algorithm.
func accepts(a model.CompressionAlgorithm) *matcherxds.Matcher_MatcherList_Predicate {
	return &matcherxds.Matcher_MatcherList_Predicate{MatchType: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate{
			Input: &corecncf.TypedExtensionConfig{
				Name: "envoy.matching.inputs.request_headers", TypedConfig: pack(&matcherv3.HttpRequestHeaderMatchInput{HeaderName: "accept-encoding"}),
			},
			Matcher: &matcherxds.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matcherxds.StringMatcher{
				MatchPattern: &matcherxds.StringMatcher_SafeRegex{SafeRegex: &matcherxds.RegexMatcher{
					EngineType: &matcherxds.RegexMatcher_GoogleRe2{GoogleRe2: &matcherxds.RegexMatcher_GoogleRE2{}},
					// By bytes: a client may send some that are no UTF-8.
					Regex: `(?i)(?:\C*,)?[ \t]*` + string(a) + `[ \t]*(?:[;,]\C*)?`,
				}},
			}},
		},
	}}
}

// compressors are the filters for algorithms, of which the first is taken by clients that like
// several equally.
func compressors(c *model.Compression, algorithms []model.CompressionAlgorithm) (out chainOf) {
	for i, a := range algorithms {
		library, types := compressionLibrary(a), c.Types()
		if a == model.CompressionZstd {
			// Envoy 1.40 hands on what zstd makes once it has 128 KiB, or the end.
			types = slices.DeleteFunc(slices.Clone(types), func(t string) bool { return t == "text/event-stream" })
		}
		if library == nil || len(types) == 0 {
			continue
		}
		out.add("envoy.filters.http.compressor", &compressorv3.Compressor{
			CompressorLibrary: &corev3.TypedExtensionConfig{Name: string(a), TypedConfig: pack(library)},
			ChooseFirst:       i == 0,
			ResponseDirectionConfig: &compressorv3.Compressor_ResponseDirectionConfig{
				CommonConfig: &compressorv3.Compressor_CommonDirectionConfig{
					// Envoy's own list has gRPC-Web, whose trailers would follow uncompressed.
					MinContentLength: wrapperspb.UInt32(c.MinBytes), ContentType: types,
				},
				// Bytes differ, the meaning does not (RFC 9110, 8.8.1): caches can still ask anew.
				WeakenEtagOnCompress:        true,
				UncompressibleResponseCodes: []uint32{partialContent},
			},
		})
	}
	return out
}

// compressionLibrary is how an algorithm is set. Clients decide how many answers are under way, and for how
// long, so each takes little memory: 0.2 MB by gzip, 0.75 MB by br, 1.5 MB by zstd. Of zstd's usual level it would be
// 3.7 MB, of br's quality 4 50 MB (Envoy 1.40).
func compressionLibrary(a model.CompressionAlgorithm) proto.Message {
	switch a {
	case model.CompressionGzip:
		return &gzipv3.Gzip{}
	case model.CompressionBrotli:
		return &brotliv3.Brotli{Quality: wrapperspb.UInt32(3), WindowBits: wrapperspb.UInt32(16)}
	case model.CompressionZstd:
		return &zstdv3.Zstd{CompressionLevel: wrapperspb.UInt32(1)}
	default:
		return nil
	}
}

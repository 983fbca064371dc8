package xds

import (
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// initialFetch bounds how long a new listener or cluster waits for what it names. The
	// agent has answered long before; this only ends the wait for what never comes.
	initialFetch = 15 * time.Second
	// shardFetch is the same for a shard of routes. An agent that holds one back (a cluster
	// that does not warm) must not keep a restarted proxy's other hosts waiting.
	shardFetch = 2 * time.Second
	// secretFetch is the same for a certificate. A listener must not wait long for one that
	// never comes: its other server names wait with it.
	secretFetch = 2 * time.Second
)

// ads is the config source "the stream to the agent".
func ads(wait time.Duration) *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
		InitialFetchTimeout:   durationpb.New(wait),
	}
}

// pack wraps a message of ours into an Any. It cannot fail: the messages are built here
// and hold valid UTF-8 only where the model does, which translate guarantees.
func pack(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic("bug: marshal " + string(m.ProtoReflect().Descriptor().FullName()) + ": " + err.Error())
	}
	return a
}

func httpFilter(name string, config proto.Message) *hcmv3.HttpFilter {
	return &hcmv3.HttpFilter{Name: name, ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(config)}}
}

// stringMatch compares a whole value, literally or by an RE2 expression.
func stringMatch(value string, regex bool) *matcherv3.StringMatcher {
	if regex {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: regexMatch(value)}}
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}
}

func regexMatch(expression string) *matcherv3.RegexMatcher {
	return &matcherv3.RegexMatcher{Regex: expression}
}

// cloneOf is a copy that shares nothing.
func cloneOf[M proto.Message](m M) M { return proto.Clone(m).(M) }

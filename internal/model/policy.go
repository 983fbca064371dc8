package model

import (
	"net/netip"
	"time"
)

// RoutePolicy is what policies ask of a route, merged: what is nearer to the route counts.
type RoutePolicy struct {
	RateLimit       *RateLimit       `json:"rateLimit,omitempty"`
	GlobalRateLimit *GlobalRateLimit `json:"globalRateLimit,omitempty"`
	Authorization   *Authorization   `json:"authorization,omitempty"`
	Addresses       *AddressFilter   `json:"addresses,omitempty"`
	// MaxRequestBytes of a body; more is answered 413. 0 is no limit.
	MaxRequestBytes uint64 `json:"maxRequestBytes,omitempty"`
	// ErrorPages are shown in place of errors.
	ErrorPages  *ErrorPages  `json:"errorPages,omitempty"`
	Compression *Compression `json:"compression,omitempty"`
	// GRPCWeb translates requests of gRPC-Web into gRPC, and answers back; nil is no, too.
	GRPCWeb *bool `json:"grpcWeb,omitempty"`
	// AccessLog is nil where the listener's own choice counts.
	AccessLog *LogShare `json:"accessLog,omitempty"`
}

// RateLimit is a token bucket at each machine.
type RateLimit struct {
	Requests uint32        `json:"requests"` // that fill the bucket in one Per
	Per      time.Duration `json:"perNanoseconds"`
	Burst    uint32        `json:"burst"` // the bucket's size
}

// GlobalRateLimit asks a service that speaks Envoy's rate limit protocol (gRPC,
// envoy.service.ratelimit.v3).
type GlobalRateLimit struct {
	Service     GroupID           `json:"service"`
	Domain      string            `json:"domain"`
	Descriptors []RateLimitSource `json:"descriptors"`
	Timeout     time.Duration     `json:"timeoutNanoseconds"`
	// FailOpen lets requests pass while the service does not answer.
	FailOpen bool `json:"failOpen,omitempty"`
}

// RateLimitSource is one entry of a descriptor. Exactly one of Header, ClientAddress and
// Value is set.
type RateLimitSource struct {
	Key           string `json:"key"`
	Header        string `json:"header,omitempty"`
	ClientAddress bool   `json:"clientAddress,omitempty"`
	Value         string `json:"value,omitempty"`
}

// Authorization asks a service whether a request may pass.
type Authorization struct {
	Service GroupID `json:"service"`
	// HTTP asks by an HTTP request to PathPrefix + path; else by gRPC
	// (envoy.service.auth.v3).
	HTTP       bool   `json:"http,omitempty"`
	PathPrefix string `json:"pathPrefix,omitempty"`
	// RequestHeaders of the client that are sent to the service (HTTP), ResponseHeaders of
	// its answer that go on to the backend.
	RequestHeaders  []string      `json:"requestHeaders,omitempty"`
	ResponseHeaders []string      `json:"responseHeaders,omitempty"`
	MaxBodyBytes    uint32        `json:"maxBodyBytes,omitempty"` // of the body, sent along
	Timeout         time.Duration `json:"timeoutNanoseconds"`
	FailOpen        bool          `json:"failOpen,omitempty"`
}

// AddressFilter lets clients in by their address. Deny goes before Allow; an empty Allow
// is everybody.
type AddressFilter struct {
	Allow []netip.Prefix `json:"allow,omitempty"`
	Deny  []netip.Prefix `json:"deny,omitempty"`
}

// OutlierDetection takes a backend out for a while that keeps failing.
type OutlierDetection struct {
	ConsecutiveErrors uint32        `json:"consecutiveErrors"` // 5xx or no answer
	Interval          time.Duration `json:"intervalNanoseconds"`
	EjectionTime      time.Duration `json:"ejectionTimeNanoseconds"`
	MaxEjected        uint32        `json:"maxEjectedPercent"`
}

// BackendLimits bound what one machine sends to a group at once (circuit breaker). 0 is
// no limit.
type BackendLimits struct {
	MaxConnections uint32 `json:"maxConnections,omitempty"`
	MaxPending     uint32 `json:"maxPending,omitempty"`
	MaxRequests    uint32 `json:"maxRequests,omitempty"`
	MaxRetryBudget uint32 `json:"maxRetryBudgetPercent,omitempty"`
	// MaxRetries is how many retries may be under way; MaxRetryBudget goes first.
	MaxRetries uint32 `json:"maxRetries,omitempty"`
}

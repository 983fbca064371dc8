package model

import "time"

// HeaderEdits change headers: Remove first, then Set, then Add. Names are lower case and
// sorted.
type HeaderEdits struct {
	Set    []Header `json:"set,omitempty"`
	Add    []Header `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// Header is one header.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PathRewriteKind says which part of a path is replaced.
type PathRewriteKind string

const (
	// RewritePrefix replaces what the route's path match took.
	RewritePrefix PathRewriteKind = "Prefix"
	// RewriteFull replaces the whole path; the query stays.
	RewriteFull PathRewriteKind = "Full"
)

// PathRewrite replaces a path.
type PathRewrite struct {
	Kind  PathRewriteKind `json:"kind"`
	Value string          `json:"value"` // begins with "/", or is empty for Prefix
}

// Redirect answers with another location. What is empty stays as the client asked, but
// the port: without Port it is the scheme's own if Scheme is set, else the listener's.
type Redirect struct {
	Scheme string       `json:"scheme,omitempty"`
	Host   string       `json:"host,omitempty"`
	Port   uint16       `json:"port,omitempty"`
	Path   *PathRewrite `json:"path,omitempty"`
	Status uint32       `json:"status"` // 301, 302, 303, 307 or 308
}

// Mirror sends copies of a share of requests to a group.
type Mirror struct {
	Group       GroupID `json:"group"`
	Numerator   uint32  `json:"numerator"`
	Denominator uint32  `json:"denominator"`
}

// CORS answers preflight requests and marks responses (Fetch standard, CORS protocol).
type CORS struct {
	// Origins as "https://www.example.com", "https://*.example.com" or "*".
	Origins     []string      `json:"origins"`
	Methods     []string      `json:"methods,omitempty"` // "*" is any
	Headers     []string      `json:"headers,omitempty"` // "*" is any
	Expose      []string      `json:"expose,omitempty"`
	Credentials bool          `json:"credentials,omitempty"`
	MaxAge      time.Duration `json:"maxAgeNanoseconds"`
}

// Sticky keeps a client at the backend that it got first (session persistence, GEP-1619).
type Sticky struct {
	Name string `json:"name"` // of the cookie or header
	// Header carries the session in a header instead of a cookie.
	Header bool `json:"header,omitempty"`
	// Lifetime of the cookie; 0 lets it end with the client's session.
	Lifetime time.Duration `json:"lifetimeNanoseconds,omitempty"`
	Path     string        `json:"path,omitempty"` // of the cookie
}

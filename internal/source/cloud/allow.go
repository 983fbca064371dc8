package cloud

import (
	"fmt"
	"strings"
)

// Allow says what credentials of upstreams may contain besides inline data. The zero value
// allows nothing: whoever may write a Secret of an upstream must not thereby run programs,
// read files or open connections in the plane.
type Allow struct {
	// Exec allows programs that print credentials.
	Exec bool
	// Files allows paths of files of the plane's machine.
	Files bool
	// Proxies allows proxies to an API, named in the credentials.
	Proxies bool
	// Insecure allows APIs whose certificates are not verified.
	Insecure bool
	// PlainHTTP allows APIs, and the message brokers of notifications, without TLS.
	PlainHTTP bool
	// Loopback allows APIs and message brokers on the plane's own machine or link.
	Loopback bool
}

// AllowFlag is the flag of the plane by whose values Allow is made.
const AllowFlag = "--upstream-allow"

// allowances are the values of AllowFlag.
var allowances = [...]struct {
	value string
	field func(*Allow) *bool
}{
	{"exec", func(a *Allow) *bool { return &a.Exec }},
	{"files", func(a *Allow) *bool { return &a.Files }},
	{"proxies", func(a *Allow) *bool { return &a.Proxies }},
	{"insecure", func(a *Allow) *bool { return &a.Insecure }},
	{"plain-http", func(a *Allow) *bool { return &a.PlainHTTP }},
	{"loopback", func(a *Allow) *bool { return &a.Loopback }},
}

// ParseAllow reads the values of AllowFlag.
func ParseAllow(values []string) (Allow, error) {
	var a Allow
next:
	for _, v := range values {
		for _, known := range allowances {
			if known.value == v {
				*known.field(&a) = true
				continue next
			}
		}
		var all []string
		for _, known := range allowances {
			all = append(all, known.value)
		}
		return Allow{}, fmt.Errorf("%q is none of %s", v, strings.Join(all, ", "))
	}
	return a, nil
}

// String is the value of --upstream-allow, such as "files,plain-http".
func (a Allow) String() string {
	var set []string
	for _, known := range allowances {
		if *known.field(&a) {
			set = append(set, known.value)
		}
	}
	return strings.Join(set, ",")
}

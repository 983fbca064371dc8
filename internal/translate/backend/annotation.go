package backend

import (
	"cmp"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// What annotations of Services say of a port's backends, as Contour has it. Of several the
// last in this order counts.
const (
	UpstreamH2  = "h2"  // HTTP/2 over TLS
	UpstreamH2C = "h2c" // HTTP/2 in clear text
	UpstreamTLS = "tls" // HTTP/1.1 over TLS
)

// contourPrefixes begin the annotations of Contour.
var contourPrefixes = [...]string{"contour.heptio.com/", "projectcontour.io/"}

// UpstreamAnnotations are what the annotations begin with; their values list names and
// numbers of ports.
var UpstreamAnnotations = [...]string{"contour.heptio.com/upstream-protocol.", "projectcontour.io/upstream-protocol."}

// limitsOf are what annotations of a Service let a machine send to it at once, as Contour has it: nil where they
// name nothing. Contour takes a text that is no number for none; unread says that.
func limitsOf(annotations map[string]string) (limits *model.BackendLimits, unread []string) {
	var l model.BackendLimits
	for _, a := range []struct {
		name  string
		limit *uint32
	}{{"max-connections", &l.MaxConnections}, {"max-pending-requests", &l.MaxPending}, {"max-requests", &l.MaxRequests}, {"max-retries", &l.MaxRetries}} {
		for _, prefix := range contourPrefixes {
			text := annotations[prefix+a.name]
			if text == "" || *a.limit > 0 {
				continue
			}
			n, err := strconv.ParseUint(text, 10, 32)
			if *a.limit = uint32(n); err != nil {
				*a.limit = 0
				unread = append(unread, "metadata.annotations["+prefix+a.name+"]: "+field.Quote(text)+" is not a number from 0 to 4294967295; the limit is ignored")
			}
		}
	}
	if l == (model.BackendLimits{}) {
		return nil, unread
	}
	return &l, unread
}

// upstreams are what a Service's annotations say of its ports, by their names and numbers.
type upstreams map[string]string

// upstreamsOf reads them once: there may be very many, of very many ports.
func upstreamsOf(annotations map[string]string) upstreams {
	said := upstreams{}
	for _, protocol := range []string{UpstreamH2, UpstreamH2C, UpstreamTLS} {
		for _, prefix := range UpstreamAnnotations {
			for port := range strings.SplitSeq(annotations[prefix+protocol], ",") {
				if port = strings.TrimSpace(port); port != "" {
					said[port] = protocol
				}
			}
		}
	}
	return said
}

// of is what is said of a port: by its name, else by its number.
func (u upstreams) of(name string, number int32) string {
	return cmp.Or(u[name], u[strconv.Itoa(int(number))])
}

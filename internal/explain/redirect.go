package explain

import (
	"cmp"
	"strconv"
	"strings"

	"fairlead.dev/internal/model"
)

// Redirect is a redirect with where it leads.
type Redirect struct {
	model.Redirect
	// Location as clients are told.
	Location string `json:"location"`
}

// location is where a redirect leads. The port is left out that the scheme implies, unless
// a client of a wildcard host wrote one itself.
func location(id model.ListenerID, h *model.VirtualHost, r *model.Route, s seen) string {
	to := r.Redirect
	scheme, port := cmp.Or(to.Scheme, s.scheme), to.Port
	usual := uint16(80)
	if scheme == "https" {
		usual = 443
	}
	if port == 0 {
		if _, port = id.Entry(); to.Scheme != "" || port == 0 {
			port = usual
		}
	}
	host, written := to.Host, false
	if host == "" {
		host = h.Host
		if strings.HasPrefix(host, "*") {
			host = stripPort(s.authority)
			written = host != s.authority
		}
	}
	text := scheme + "://" + host
	if port != usual || written {
		text += ":" + strconv.Itoa(int(port))
	}
	text += rewritten(r.Match.Path, to.Path, s.path)
	if s.query != "" {
		text += "?" + s.query
	}
	return text
}

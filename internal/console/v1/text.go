package v1

import (
	"strconv"

	"fairlead.dev/internal/model"
)

// String is "Kind namespace/name", or "Kind name" without a namespace.
func (o Object) String() string { return model.Object(o).String() }

// Describe names the object for people.
func (o Object) Describe() string { return model.Object(o).Describe() }

// String is "tcp://192.0.2.1:80" or "udp://[2001:db8::1]:53".
func (k FrontendKey) String() string { return k.key().String() }

// Compare orders keys by VIP, port and transport.
func (k FrontendKey) Compare(l FrontendKey) int { return k.key().Compare(l.key()) }

func (k FrontendKey) key() model.FrontendKey {
	return model.FrontendKey{VIP: k.VIP, Transport: model.Transport(k.Transport), Port: k.Port}
}

// Proxy reports whether the backend of a frontend is a proxy: it is reached at the VIP itself.
func (b FrontendBackend) Proxy(k FrontendKey) bool { return b.Address.Addr() == k.VIP }

// StateText is the state for people: of a backup that is not needed it is standby.
func (b FrontendBackend) StateText() string {
	switch {
	case b.Standby > 0:
		return "standby"
	case b.Backup:
		return string(b.State) + " (backup)"
	}
	return string(b.State)
}

// NameAt is the revision's name at an epoch: its number, and before that its own epoch when that is another one. Each
// leadership of a plane counts anew.
func (r Revision) NameAt(epoch uint64) string {
	name := strconv.FormatUint(r.Number, 10)
	if r.Epoch != epoch {
		name = strconv.FormatUint(r.Epoch, 10) + "/" + name
	}
	return name
}

// URL is the request's, with the port where it is not the scheme's own.
func (r ExplainedRequest) URL() string {
	u := r.Scheme + "://" + r.Host + r.Path
	if r.Query != "" {
		u += "?" + r.Query
	}
	return u
}

// String is "HTTPRoute team/app spec.rules[0] (routes.yaml:12)".
func (s Source) String() string {
	text := s.Describe()
	if s.Field != "" {
		text += " " + s.Field
	}
	if s.Where != "" {
		text += " (" + s.Where + ")"
	}
	return text
}

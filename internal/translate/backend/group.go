package backend

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/input"
)

// WeightLimit is the largest weight, as both route kinds' schemas have it.
const WeightLimit = 1_000_000

// GroupOptions is what a route asks of a group, besides what the Service's port says
// itself. The zero value asks for nothing.
type GroupOptions struct {
	Balance model.Balance
	Check   *model.HealthCheck
	// Protocol is what the kind of route speaks with a port that does not say what it is.
	Protocol model.BackendProtocol
	// TLS is how the route itself wants backends verified; it goes before a BackendTLSPolicy.
	TLS *model.BackendTLS
	// Websocket keeps connections to HTTP/1.1, so that they can be upgraded.
	Websocket bool
	// Certificate is shown to backends that are spoken to over TLS; empty is none.
	Certificate model.CertificateID
}

// MakeGroup is the group of a Service's port, as FindPort found it, with everything that
// decides how its backends are spoken to: the port's appProtocol, a BackendTLSPolicy, a
// BackendPolicy, and what the route asks for. With a fault there is no group, and requests must not be sent
// there in another way instead.
func (t *Tables) MakeGroup(c *memo.Context, service snapshot.Name, port Port, o GroupOptions) (model.BackendGroup, Fault, string) {
	g := PlainGroup(service, port)
	describe := func() string {
		return "port " + strconv.Itoa(int(port.Number)) + " of Service " + service.String()
	}
	policy := t.PolicyOf(c, service, port.Name)
	g.Balance, g.HealthCheck, g.Protocol, g.TLS = o.Balance, o.Check, o.Protocol, o.TLS
	if g.Balance == model.BalanceCookie {
		g.Cookie = t.in.Config.AffinityCookie
	}
	port.Options.apply(&g)
	if g.TLS == nil && policy != nil {
		if policy.tls == nil {
			return g, PolicyInvalid, describe() + ": BackendTLSPolicy " + policy.Name.String() + ", which configures its verification, is invalid: " + policy.problem()
		}
		g.TLS = policy.tls
	}
	switch protocol := port.protocolOfApp(); {
	case o.Protocol == model.BackendTCP:
	case protocol.secure && g.TLS == nil:
		return g, PortProtocol, describe() + " has appProtocol " + port.appProtocol + ": a BackendTLSPolicy must configure the verification of its certificate"
	case protocol.websocket && o.Protocol == model.BackendHTTP2:
		return g, PortProtocol, describe() + " has appProtocol " + port.appProtocol + ", which does not carry gRPC"
	case protocol.http2:
		g.Protocol = model.BackendHTTP2
	case o.Protocol == model.BackendHTTP1 && g.TLS != nil && !protocol.websocket && !o.Websocket:
		g.Protocol = model.BackendAuto
	}
	if g.TLS != nil && o.Certificate != "" {
		tls := *g.TLS
		tls.Certificate = o.Certificate
		g.TLS = &tls
	}
	return WithOptions(g), Fine, ""
}

// PlainGroup is a Service's port without options.
func PlainGroup(service snapshot.Name, port Port) model.BackendGroup {
	id := service.Namespace + "/" + service.Name + "/" + strconv.Itoa(int(port.Number))
	return model.BackendGroup{ID: model.GroupID(id), Set: model.SetID(id), Upstream: port.discovered}
}

// WithOptions gives a group with options an ID of its own, a function of the options
// alone: routes that want the same share a group, and nobody finds others that have its ID, too.
func WithOptions(g model.BackendGroup) model.BackendGroup {
	plain := model.BackendGroup{ID: model.GroupID(g.Set), Set: g.Set, Upstream: g.Upstream}
	if g.ID = plain.ID; g == plain {
		return g
	}
	options := g
	options.ID, options.Set, options.Upstream = "", "", ""
	text, err := json.Marshal(options)
	if err != nil {
		panic("a group that cannot be written: " + err.Error()) // it is made of texts and numbers
	}
	sum := sha256.Sum256(text)
	g.ID += model.GroupID("~" + hex.EncodeToString(sum[:16]))
	return g
}

// AddGroup appends a group unless the list holds one with the same ID.
func AddGroup(groups []model.BackendGroup, g model.BackendGroup) []model.BackendGroup {
	if slices.ContainsFunc(groups, func(known model.BackendGroup) bool { return known.ID == g.ID }) {
		return groups
	}
	return append(groups, g)
}

// AddWeight adds a share; one for a group that has a share already makes that larger.
func AddWeight(shares []model.WeightedGroup, id model.GroupID, weight uint32) []model.WeightedGroup {
	for i := range shares {
		if shares[i].Group == id {
			shares[i].Weight = uint32(min(uint64(shares[i].Weight)+uint64(weight), math.MaxUint32))
			return shares
		}
	}
	return append(shares, model.WeightedGroup{Group: id, Weight: weight})
}

// groupUse is a group, and how many things name it: routes of virtual hosts, server names, listeners.
type groupUse struct {
	group *model.BackendGroup
	uses  int
}

func (u *groupUse) fold(_ certificate.User, before, after **model.BackendGroup) {
	if before == nil {
		u.uses++
	}
	if after == nil {
		u.uses--
	} else {
		u.group = *after
	}
}

// UseGroups puts the groups that something names.
func (t *Tables) UseGroups(c *memo.Context, groups []model.BackendGroup, by certificate.User) {
	for i := range groups {
		t.GroupUses.Put(c, groups[i].ID, by, &groups[i])
	}
}

// usePinned puts the groups, certificates and authorities of one set of pins.
func (t *Tables) usePinned(c *memo.Context, pin int, p input.Pins) {
	by := certificate.User{Kind: "pin", Object: model.Object{Name: strconv.Itoa(pin)}}
	t.UseGroups(c, p.Groups, by)
	for _, id := range p.Certificates {
		t.from.Certificates.CertificateUses.Put(c, id, by, struct{}{})
	}
	for _, id := range p.Authorities {
		t.from.Certificates.AuthorityUses.Put(c, id, by, struct{}{})
	}
}

// makeUsedGroup is a group that something names. Its Service says whether it is measured, which is no option that users name. Its set, and what its TLS names, are used with it.
func (t *Tables) makeUsedGroup(c *memo.Context, id model.GroupID) (*model.BackendGroup, bool) {
	use := t.GroupUses.Get(c, id)
	if use.uses == 0 {
		return nil, false
	}
	g := *use.group
	if k, ok := PortOfSet(g.Set); ok {
		t.SetUses.Put(c, k, SetUser{group: id}, struct{}{})
		if service := t.Services.Get(c, k.Service); measurable(service, &g) {
			g.Measured = t.measured.Granted(c, k.Service.Namespace, id, service.created)
			if !g.Measured {
				t.Unmeasured.Put(c, k.Service, id, struct{}{})
			}
		}
	}
	t.from.Certificates.Uses(c, use.group.TLS, certificate.User{Kind: "group", Object: model.Object{Name: string(id)}})
	return &g, true
}

// measurable says whether a group of a Service is to be measured. Proxies count requests only.
func measurable(service *Service, g *model.BackendGroup) bool {
	return service != nil && service.measured && g.Protocol != model.BackendTCP
}

// claim has a group that something names measured, if its Service asks for it and there is room.
func (t *Tables) claim(c *memo.Context, id model.GroupID) (struct{}, bool) {
	use := t.GroupUses.Get(c, id)
	if use.uses == 0 {
		return struct{}{}, false
	}
	if k, ok := PortOfSet(use.group.Set); ok {
		if service := t.Services.Get(c, k.Service); measurable(service, use.group) {
			t.measured.Claim(c, k.Service.Namespace, id, service.created)
		}
	}
	return struct{}{}, true
}

// UnmeasuredNote says that groups of a Service are not measured although it asks for it; empty: none, or they are.
func (t *Tables) UnmeasuredNote(c *memo.Context, service snapshot.Name) string {
	if t.Unmeasured.Get(c, service) == 0 {
		return ""
	}
	return fmt.Sprintf("Service %s: metadata.annotations[%s]: backends without metrics of their own: more than %d groups of backends ask for them, and older ones of namespace %s have its share",
		service, v1alpha1.AnnotationMetrics, t.in.Config.MeasuredGroups, service.Namespace)
}

// TCPShares are shares of connections, with the groups that they name.
type TCPShares struct {
	Shares []model.WeightedGroup
	Groups []model.BackendGroup
}

// Add gives a group a share of the connections.
func (s *TCPShares) Add(g model.BackendGroup, weight uint32) {
	s.Groups = AddGroup(s.Groups, g)
	s.Shares = AddWeight(s.Shares, g.ID, weight)
}

package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// weightLimit is the largest weight, as both route kinds' schemas have it.
const weightLimit = 1_000_000

// groupOptions is what a route asks of a group, besides what the Service's port says
// itself. The zero value asks for nothing.
type groupOptions struct {
	balance model.Balance
	check   *model.HealthCheck
	// protocol is what the kind of route speaks with a port that does not say what it is.
	protocol model.BackendProtocol
	// tls is how the route itself wants backends verified; it goes before a BackendTLSPolicy.
	tls *model.BackendTLS
	// websocket keeps connections to HTTP/1.1, so that they can be upgraded.
	websocket bool
	// certificate is shown to backends that are spoken to over TLS; empty is none.
	certificate model.CertificateID
}

// makeGroup is the group of a Service's port, as findPort found it, with everything that
// decides how its backends are spoken to: the port's appProtocol, a BackendTLSPolicy, a
// BackendPolicy, and what the route asks for. With a fault there is no group, and requests must not be sent
// there in another way instead.
func (t *backendTables) makeGroup(c *memo.Context, service snapshot.Name, port servicePort, o groupOptions) (model.BackendGroup, serviceFault, string) {
	g := plainGroup(service, port.number)
	describe := func() string {
		return "port " + strconv.Itoa(int(port.number)) + " of Service " + service.String()
	}
	policy := t.policyOf(c, service, port.name)
	g.Balance, g.HealthCheck, g.Protocol, g.TLS = o.balance, o.check, o.protocol, o.tls
	if g.Balance == model.BalanceCookie {
		g.Cookie = t.in.config.AffinityCookie
	}
	port.options.apply(&g)
	if g.TLS == nil && policy != nil {
		if policy.tls == nil {
			return g, policyInvalid, describe() + ": BackendTLSPolicy " + policy.name.String() + ", which says how it is verified, is invalid: " + policy.problem()
		}
		g.TLS = policy.tls
	}
	switch protocol := port.protocolOfApp(); {
	case o.protocol == model.BackendTCP:
	case protocol.secure && g.TLS == nil:
		return g, portProtocol, describe() + " has appProtocol " + port.appProtocol + ": a BackendTLSPolicy must say how its certificate is verified"
	case protocol.websocket && o.protocol == model.BackendHTTP2:
		return g, portProtocol, describe() + " has appProtocol " + port.appProtocol + ", over which there is no gRPC"
	case protocol.http2:
		g.Protocol = model.BackendHTTP2
	case o.protocol == model.BackendHTTP1 && g.TLS != nil && !protocol.websocket && !o.websocket:
		g.Protocol = model.BackendAuto
	}
	if g.TLS != nil && o.certificate != "" {
		tls := *g.TLS
		tls.Certificate = o.certificate
		g.TLS = &tls
	}
	return withOptions(g), serviceFine, ""
}

// plainGroup is a Service's port without options.
func plainGroup(service snapshot.Name, port int32) model.BackendGroup {
	id := service.Namespace + "/" + service.Name + "/" + strconv.Itoa(int(port))
	return model.BackendGroup{ID: model.GroupID(id), Set: model.SetID(id)}
}

// withOptions gives a group with options an ID of its own, a function of the options
// alone: routes that want the same share a group, and nobody finds others that have its ID, too.
func withOptions(g model.BackendGroup) model.BackendGroup {
	plain := model.BackendGroup{ID: model.GroupID(g.Set), Set: g.Set}
	if g.ID = plain.ID; g == plain {
		return g
	}
	options := g
	options.ID, options.Set = "", ""
	text, err := json.Marshal(options)
	if err != nil {
		panic("a group that cannot be written: " + err.Error()) // it is made of texts and numbers
	}
	sum := sha256.Sum256(text)
	g.ID += model.GroupID("~" + hex.EncodeToString(sum[:16]))
	return g
}

func addGroup(groups []model.BackendGroup, g model.BackendGroup) []model.BackendGroup {
	if slices.ContainsFunc(groups, func(known model.BackendGroup) bool { return known.ID == g.ID }) {
		return groups
	}
	return append(groups, g)
}

// addWeight adds a share; one for a group that has a share already makes that larger.
func addWeight(shares []model.WeightedGroup, id model.GroupID, weight uint32) []model.WeightedGroup {
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

func (u *groupUse) fold(_ user, before, after **model.BackendGroup) {
	if before == nil {
		u.uses++
	}
	if after == nil {
		u.uses--
	} else {
		u.group = *after
	}
}

// useGroups puts the groups that something names.
func (t *backendTables) useGroups(c *memo.Context, groups []model.BackendGroup, by user) {
	for i := range groups {
		t.groupUses.Put(c, groups[i].ID, by, &groups[i])
	}
}

// makeUsedGroup is a group that something names. Its set, and what its TLS names, are used with it.
func (t *backendTables) makeUsedGroup(c *memo.Context, id model.GroupID) (*model.BackendGroup, bool) {
	use := t.groupUses.Get(c, id)
	if use.uses == 0 {
		return nil, false
	}
	if k, ok := portOfSet(use.group.Set); ok {
		t.setUses.Put(c, k, setUser{group: id}, struct{}{})
	}
	t.tls.uses(c, use.group.TLS, user{kind: "group", object: model.Object{Name: string(id)}})
	g := *use.group
	return &g, true
}

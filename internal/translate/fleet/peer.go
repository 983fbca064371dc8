package fleet

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/pool"
)

// Peer is what is in force of a BGPPeer.
type Peer struct {
	created int64
	// Invalid is what is wrong with the settings, and accepted what is with those of the
	// object's spec, which may be others.
	Invalid  condition.Result[string]
	Accepted condition.Result[string]
	// Spec has the settings that the status shows as those in force; former says that it is not
	// the object's own.
	Spec     *v1alpha1.BGPPeerSpec
	Former   bool
	machines *metav1.LabelSelector
	Peer     model.Peer
}

// What a BGPPeer has that says nothing, as its schema has it.
const (
	defaultHold         = 9 * time.Second
	defaultConnectRetry = 10 * time.Second
	defaultRestart      = 15 * time.Second
	defaultBFDInterval  = 300 * time.Millisecond
	defaultMultiplier   = 3
	defaultMaxPrefixes  = 1000
	bgpPort             = 179
)

// peerCompiler collects what it finds in one BGPPeer.
type peerCompiler struct {
	spec *v1alpha1.BGPPeerSpec
	peer *Peer
}

func (c *peerCompiler) fail(path, problem string) {
	c.peer.Invalid.Fail(v1alpha1.ReasonInvalid, path+": "+problem)
}

// newPeer judges settings of a BGPPeer for themselves.
func newPeer(o *v1alpha1.BGPPeer, spec *v1alpha1.BGPPeerSpec) *Peer {
	c := peerCompiler{spec: spec, peer: &Peer{
		created: o.CreationTimestamp.Unix(), Spec: spec, machines: spec.Machines,
		Peer: model.Peer{Name: o.Name, NeedsPassword: spec.PasswordSecret != ""},
	}}
	pool.SelectorProblem(spec.Machines, "spec.machines", c.fail)
	c.address()
	c.connection()
	c.systems()
	c.times()
	c.carried()
	return c.peer
}

func (c *peerCompiler) address() {
	p := &c.peer.Peer
	if c.spec.Port < 0 || c.spec.Port > 65535 {
		c.fail("spec.port", strconv.Itoa(int(c.spec.Port))+" must be in the range 1-65535")
	} else {
		p.Port = uint16(cmp.Or(c.spec.Port, bgpPort))
	}
	if c.spec.Interface != "" {
		c.link()
		return
	}
	a, err := netip.ParseAddr(c.spec.Address)
	switch {
	case c.spec.Address == "":
		c.fail("spec.address", "is missing: give it, or interface to find the router of a link")
		return
	case err != nil:
		c.fail("spec.address", field.Quote(c.spec.Address)+" is not an IP address")
		return
	case a.Is4In6():
		c.fail("spec.address", field.Quote(c.spec.Address)+" is an IPv4 address: write "+a.Unmap().String())
		return
	case a.IsUnspecified() || a.IsMulticast() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		c.fail("spec.address", a.String()+" is not the address of one machine")
	case a.Is6() && a.IsLinkLocalUnicast() && a.Zone() == "":
		c.fail("spec.address", a.String()+` is link-local: add the interface, as in "`+a.String()+`%eth0"`)
	case a.Zone() != "" && !a.IsLinkLocalUnicast():
		c.fail("spec.address", a.String()+" is not link-local: leave the interface out")
	}
	p.Address = a
}

// link reads the interface whose router is the peer.
func (c *peerCompiler) link() {
	s := c.spec
	switch {
	case s.Address != "":
		c.fail("spec.interface", "excludes address: the machine finds the router's")
	case !deviceName(s.Interface):
		c.fail("spec.interface", field.Quote(s.Interface)+" is not a valid interface name")
	}
	if s.SourceAddress != "" {
		c.fail("spec.sourceAddress", "is for peers with an address: with interface the session comes from the link-local address")
	}
	if s.TTL != 0 {
		c.fail("spec.ttl", "is for peers with an address: with interface the router is on the link")
	}
	if s.TTLSecurityHops > 1 {
		c.fail("spec.ttlSecurityHops", strconv.Itoa(int(s.TTLSecurityHops))+" must be 1: with interface the router is on the link")
	}
	c.peer.Peer.Interface = s.Interface
}

// deviceName reports whether Linux could have a device of that name.
func deviceName(s string) bool {
	return s != "" && len(s) <= deviceNameLimit && s != "." && s != ".." && !strings.ContainsAny(s, "/:% \t\n\r\v\f")
}

// systems reads the AS numbers and what depends on whether they are the same.
func (c *peerCompiler) systems() {
	number := func(n int64, path string) uint32 {
		switch {
		case n < 1 || n > 4294967295:
			c.fail(path, strconv.FormatInt(n, 10)+" must be in the range 1-4294967295")
		case n == 23456 || n == 65535 || n == 4294967295: // RFC 6793, RFC 7300
			c.fail(path, "AS "+strconv.FormatInt(n, 10)+" is reserved")
		}
		return uint32(n)
	}
	p := &c.peer.Peer
	p.LocalASN, p.PeerASN = number(c.spec.LocalASN, "spec.localASN"), number(c.spec.PeerASN, "spec.peerASN")
	internal := c.spec.LocalASN == c.spec.PeerASN
	switch {
	case c.spec.TTL != 0 && internal:
		c.fail("spec.ttl", "is for external peers: localASN and peerASN are the same")
	case c.spec.TTL != 0 && (c.spec.TTL < 2 || c.spec.TTL > 255):
		c.fail("spec.ttl", strconv.Itoa(int(c.spec.TTL))+" must be in the range 2-255")
	default:
		p.TTL = uint8(c.spec.TTL)
	}
	switch {
	case c.spec.TTLSecurityHops != 0 && c.spec.TTL != 0:
		c.fail("spec.ttlSecurityHops", "excludes ttl: packets have TTL 255")
	case c.spec.TTLSecurityHops < 0 || c.spec.TTLSecurityHops > 254:
		c.fail("spec.ttlSecurityHops", strconv.Itoa(int(c.spec.TTLSecurityHops))+" must be in the range 1-254")
	default:
		p.TTLSecurity = uint8(c.spec.TTLSecurityHops)
	}
	role, known := map[v1alpha1.BGPRole]model.Role{
		"": model.RoleNone, v1alpha1.RoleProvider: model.RoleProvider, v1alpha1.RoleRouteServer: model.RoleRouteServer,
		v1alpha1.RoleRouteServerClient: model.RoleRouteServerClient, v1alpha1.RoleCustomer: model.RoleCustomer, v1alpha1.RolePeer: model.RolePeer,
	}[c.spec.Role]
	switch {
	case !known:
		c.fail("spec.role", field.Quote(string(c.spec.Role))+" must be Provider, RouteServer, RouteServerClient, Customer or Peer")
	case role != model.RoleNone && internal:
		c.fail("spec.role", "is for external peers: localASN and peerASN are the same")
	case c.spec.StrictRole && role == model.RoleNone:
		c.fail("spec.strictRole", "needs role")
	}
	p.Role, p.StrictRole = role, c.spec.StrictRole
	p.Path = pool.MakePath(c.spec.PathAttributes, "spec.", c.fail)
	if p.Path.LocalPreference != nil && !internal {
		c.fail("spec.localPreference", "is for internal peers: localASN and peerASN differ")
	}
	if p.Path.Prepend > 0 && internal {
		c.fail("spec.prepend", "is for external peers: localASN and peerASN are the same")
	}
}

// duration reads a field with a default and bounds.
func (c *peerCompiler) duration(d *metav1.Duration, path string, otherwise, least, most time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	if d.Duration < least || d.Duration > most {
		c.fail(path, d.Duration.String()+" must be between "+least.String()+" and "+most.String())
		return otherwise
	}
	return d.Duration
}

// seconds is duration for what BGP counts in whole seconds.
func (c *peerCompiler) seconds(d *metav1.Duration, path string, otherwise, least, most time.Duration) time.Duration {
	value := c.duration(d, path, otherwise, least, most)
	if value%time.Second != 0 {
		c.fail(path, value.String()+" must be whole seconds")
	}
	return value
}

func (c *peerCompiler) times() {
	const longest = 65535 * time.Second // two bytes (RFC 4271, 4.2)
	p, s := &c.peer.Peer, c.spec
	never := s.HoldTime != nil && s.HoldTime.Duration == 0
	if !never {
		p.HoldTime = c.seconds(s.HoldTime, "spec.holdTime", defaultHold, 3*time.Second, longest)
		p.Keepalive = (p.HoldTime / 3).Truncate(time.Second)
	}
	if s.KeepaliveTime != nil {
		p.Keepalive = c.seconds(s.KeepaliveTime, "spec.keepaliveTime", p.Keepalive, time.Second, longest/3)
		switch {
		case never:
			c.fail("spec.keepaliveTime", "there are no keepalives with holdTime 0s: leave one of the two out")
		case p.Keepalive >= p.HoldTime:
			c.fail("spec.keepaliveTime", p.Keepalive.String()+" must be shorter than the hold time of "+p.HoldTime.String())
		}
	}
	p.ConnectRetry = c.duration(s.ConnectRetryTime, "spec.connectRetryTime", defaultConnectRetry, time.Second, time.Hour)
	if s.BFD != nil {
		multiplier := cmp.Or(s.BFD.Multiplier, defaultMultiplier)
		if multiplier < 1 || multiplier > 255 {
			c.fail("spec.bfd.multiplier", strconv.Itoa(int(multiplier))+" must be in the range 1-255")
		}
		mode, known := map[v1alpha1.BFDMode]model.BFDMode{"": "", v1alpha1.BFDSingleHop: model.BFDSingleHop, v1alpha1.BFDMultiHop: model.BFDMultiHop}[s.BFD.Mode]
		if !known {
			c.fail("spec.bfd.mode", field.Quote(string(s.BFD.Mode))+" must be SingleHop or MultiHop")
		}
		p.BFD = &model.BFD{
			Mode:       mode,
			Interval:   c.duration(s.BFD.Interval, "spec.bfd.interval", defaultBFDInterval, 10*time.Millisecond, time.Minute),
			Multiplier: uint8(multiplier),
		}
	}
	if !s.GracefulRestart.Disabled {
		p.RestartTime = c.seconds(s.GracefulRestart.RestartTime, "spec.gracefulRestart.restartTime", defaultRestart, time.Second, 4095*time.Second)
	}
}

// carried reads the families, and what prefixes of them carry.
func (c *peerCompiler) carried() {
	p, s := &c.peer.Peer, c.spec
	p.AddPath = s.AddPath
	for i, f := range s.Families {
		switch f {
		case v1alpha1.FamilyIPv4:
			p.IPv4 = true
		case v1alpha1.FamilyIPv6:
			p.IPv6 = true
		default:
			c.fail(field.At("spec.families", i), field.Quote(string(f))+" must be IPv4 or IPv6")
		}
	}
	if len(s.Families) == 0 {
		p.IPv4, p.IPv6 = !p.Address.Is6(), !p.Address.Is4()
	}
	p.NextHop4 = c.nextHop(s.NextHopIPv4, "spec.nextHopIPv4", address.IPv4)
	p.NextHop6 = c.nextHop(s.NextHopIPv6, "spec.nextHopIPv6", address.IPv6)
	if s.MaxPrefixes < 0 {
		c.fail("spec.maxPrefixes", strconv.Itoa(int(s.MaxPrefixes))+" must be above 0")
	}
	p.MaxPrefixes = uint32(cmp.Or(max(s.MaxPrefixes, 0), defaultMaxPrefixes))
	switch s.MaxPrefixesAction {
	case "", v1alpha1.MaxPrefixesIgnore:
	case v1alpha1.MaxPrefixesEndSession:
		p.EndAboveMax = true
	default:
		c.fail("spec.maxPrefixesAction", field.Quote(string(s.MaxPrefixesAction))+" must be Ignore or EndSession")
	}
}

// nextHop reads one of the next hops.
func (c *peerCompiler) nextHop(text, path string, fam address.Family) netip.Prefix {
	p := c.plainAddress(text, path)
	switch {
	case !p.IsValid():
	case address.FamilyOf(p.Addr()) != fam:
		c.fail(path, text+" is not an "+fam.String()+" address")
	case p.IsSingleIP() && !model.Reachable(p.Addr()):
		c.fail(path, text+" is not an address at which a router can reach a machine")
	}
	return p
}

// plainAddress reads an address, or a network in which each machine has one.
func (c *peerCompiler) plainAddress(text, path string) netip.Prefix {
	if text == "" {
		return netip.Prefix{}
	}
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4In6() {
			c.fail(path, field.Quote(text)+" is not a network")
			return netip.Prefix{}
		}
		return p.Masked()
	}
	a, err := address.ParsePlain(text)
	if err != nil {
		c.fail(path, err.Error())
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, a.BitLen())
}

// connection reads who connects, and from where.
func (c *peerCompiler) connection() {
	p, s := &c.peer.Peer, c.spec
	mode, known := map[v1alpha1.ConnectionMode]model.Connection{
		"": model.ConnectionActive, v1alpha1.ConnectionActive: model.ConnectionActive,
		v1alpha1.ConnectionPassive: model.ConnectionPassive, v1alpha1.ConnectionBoth: model.ConnectionBoth,
	}[s.Connection]
	if !known {
		c.fail("spec.connection", field.Quote(string(s.Connection))+" must be Active, Passive or Both")
	}
	p.Connection = mode
	p.Source = c.plainAddress(s.SourceAddress, "spec.sourceAddress")
	if p.Source.IsValid() && p.Address.IsValid() && p.Source.Addr().Is4() != p.Address.Is4() {
		c.fail("spec.sourceAddress", s.SourceAddress+" is of another family than "+p.Address.String())
	}
	if s.VRF != "" && !deviceName(s.VRF) {
		c.fail("spec.vrf", field.Quote(s.VRF)+" is not a valid device name")
	}
	p.Device = s.VRF
}

// deviceNameLimit is the longest name of a device (IFNAMSIZ).
const deviceNameLimit = 15

// formerPeer are the last settings of a BGPPeer that could be used, nil if none are known.
func (t *Tables) formerPeer(c *memo.Context, o *v1alpha1.BGPPeer) *v1alpha1.BGPPeerSpec {
	if former := t.in.PeersInForce.Get(c, snapshot.Name{Name: o.Name}); former != nil {
		return former
	}
	return o.Status.InForce
}

// peerInForce judges the settings of a BGPPeer, and goes back to the former ones if they cannot
// be used: a bad edit must not end the sessions of all machines.
func (t *Tables) peerInForce(c *memo.Context, name string) (*Peer, bool) {
	o := t.in.BGPPeers.Get(c, snapshot.Name{Name: name})
	if o == nil {
		return nil, false
	}
	f := t.usablePeer(c, o)
	if !f.Invalid.Failed {
		t.peersAt.Put(c, f.at(), name, struct{}{})
	}
	return f, true
}

func (t *Tables) usablePeer(c *memo.Context, o *v1alpha1.BGPPeer) *Peer {
	usable := func(f *Peer) bool {
		f.Accepted = f.Invalid
		if problem := t.password(c, f); problem != "" && !f.Accepted.Failed {
			f.Accepted.Fail(v1alpha1.ReasonPasswordMissing, "spec.passwordSecret: "+problem)
		}
		return !f.Accepted.Failed
	}
	f := newPeer(o, &o.Spec)
	if usable(f) {
		return f
	}
	spec := t.formerPeer(c, o)
	if spec == nil {
		return f
	}
	former := newPeer(o, spec)
	switch {
	case usable(former):
	case former.Invalid.Failed:
		return f
	case !f.Invalid.Failed: // neither has a password
		f.Spec, f.Former = spec, true
		return f
	}
	former.Accepted, former.Former = f.Accepted, true
	return former
}

// at is where the peer is, which no other peer of a machine may be: an address, or an interface.
func (f *Peer) at() string {
	if f.Peer.Interface != "" {
		return "interface " + f.Peer.Interface
	}
	return f.Peer.Address.String()
}

// peerPassword is a password, or that a Secret has none that can be used.
type peerPassword struct {
	password model.Redacted
	problem  string
}

// passwordLimit is the longest that Linux takes (TCP_MD5SIG_MAXKEYLEN).
const passwordLimit = 80

func (t *Tables) makeSecret(c *memo.Context, name string) (*peerPassword, bool) {
	o := t.in.Secrets.Get(c, snapshot.Name{Namespace: t.in.Config.SecretNamespace, Name: name})
	if o == nil {
		return nil, false
	}
	f := &peerPassword{password: model.Redacted(o.Data[snapshot.PasswordKey])}
	switch {
	case f.password == "":
		f.problem = `has no key "` + snapshot.PasswordKey + `"`
	case len(f.password) > passwordLimit:
		f = &peerPassword{problem: "has a password of more than " + strconv.Itoa(passwordLimit) + " bytes"}
	case !utf8.ValidString(string(f.password)): // machines are told it as text
		f = &peerPassword{problem: "has a password that is not UTF-8"}
	}
	return f, true
}

// password sets the password of a peer, or says why there is none.
func (t *Tables) password(c *memo.Context, f *Peer) string {
	if f.Spec.PasswordSecret == "" {
		return ""
	}
	where := "Secret " + t.in.Config.SecretNamespace + "/" + f.Spec.PasswordSecret
	switch s := t.secrets.Get(c, f.Spec.PasswordSecret); {
	case s == nil:
		return where + " not found"
	case s.problem != "":
		return where + " " + s.problem
	default:
		f.Peer.Password = s.password
		return ""
	}
}

// Sessions are the machines that keep a session with a peer.
type Sessions struct {
	machines  []string // sorted
	Conflicts []string // where an older peer has the address, in words
	Doubles   []string // machines whose router id an older one has, in words
}

// makeSessions brings a peer to the machines that it selects.
func (t *Tables) makeSessions(c *memo.Context, name string) (*Sessions, bool) {
	if t.in.BGPPeers.Get(c, snapshot.Name{Name: name}) == nil {
		return nil, false
	}
	f := t.PeerSpecs.Get(c, name)
	s := &Sessions{Doubles: t.routerIDConflicts(c, f)}
	if !f.Invalid.Failed {
		s.machines, s.Conflicts = t.peerMachines(c, name, f)
	}
	for _, machine := range s.machines {
		t.Peers.Put(c, model.PeerKey{Machine: machine, Peer: name}, memo.Unit{}, &f.Peer)
	}
	return s, true
}

// peerMachines are the machines that keep a session with a peer, sorted, and those
// where an older peer has the address, in words.
func (t *Tables) peerMachines(c *memo.Context, name string, f *Peer) (machines, conflicts []string) {
	type elder struct {
		name string
		peer *Peer
	}
	var older []elder
	at := t.peersAt.Get(c, f.at())
	for _, other := range slices.Sorted(at.Keys()) {
		g := t.PeerSpecs.Get(c, other)
		if g != nil && other != name && cmp.Or(cmp.Compare(g.created, f.created), cmp.Compare(other, name)) < 0 {
			older = append(older, elder{other, g})
		}
	}
	for _, m := range t.Machines.Get(c, memo.Unit{}) {
		if m.backend || !pool.Matches(f.machines, m.labels) {
			continue
		}
		if i := slices.IndexFunc(older, func(o elder) bool { return pool.Matches(o.peer.machines, m.labels) }); i >= 0 {
			conflicts = append(conflicts, "Machine "+m.Name+" has BGPPeer "+older[i].name+", which is older, at "+f.at())
			continue
		}
		machines = append(machines, m.Name)
	}
	return machines, conflicts
}

// routerIDConflicts names the machines of a peer whose router id an older one has.
func (t *Tables) routerIDConflicts(c *memo.Context, f *Peer) []string {
	var texts []string
	for _, m := range t.Machines.Get(c, memo.Unit{}) {
		if m.keeper != "" && !m.backend && pool.Matches(f.machines, m.labels) {
			texts = append(texts, "Machine "+m.Name+" has the router id "+m.routerID.String()+" of Machine "+m.keeper+", which is older, and chooses its own")
		}
	}
	return texts
}

package vip

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/fleet"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/pool"
)

// assignmentLimit is how many addresses one pool gives away: its status is one object.
const assignmentLimit = 4096

// poolOutcome is what became of a pool.
type poolOutcome struct {
	Accepted condition.Result[string]
	Notes    []string
	Records  []pool.Assignment // the whole new state, sorted
	Free     [address.Families]uint64
}

// Grant is an address that is recorded, with its owner.
type Grant struct {
	Pool      string
	Owner     model.Object
	Listeners []model.ListenerID
	Members   []model.Object // that share it, whoever has a port first
}

// assigner gives addresses to owners. Its order is: what is recorded and still right
// is kept; then those get theirs that ask for a certain address; then the others take
// the lowest that is free, older owners first. No address gets two owners, and the same
// input gives the same result in whatever order it is visited.
type assigner struct {
	pools   []*poolBook // oldest first
	byName  map[string]*poolBook
	wants   []*Want // oldest first
	wantOf  map[model.Object]*Want
	sharing []string // namespaces with root IngressRoutes that share, sorted
	own     []fleet.OwnAddress
	labels  func(namespace string) map[string]string
	tlsAt   map[string]bool // pools with a shared address at which somebody has TLS
	// refused are owners that share an address and want what they cannot have there.
	refused map[model.Object]*Outcome

	taken    map[netip.Addr]holder
	recorded map[netip.Addr][]holder // as stored, right or wrong
	has      map[model.Object][]held
	told     map[model.Object]*condition.Result[gatewayv1.GatewayConditionReason]
	pooled   map[model.Object]bool
	admitted map[[2]string]bool
}

type holder struct {
	pool  string
	owner model.Object
	kept  bool // it was recorded before, and so may be used
}

type held struct {
	address netip.Addr
	pool    string
	kept    bool
}

// poolBook is a pool while addresses are given away.
type poolBook struct {
	*pool.Pool
	stored  *pool.Record
	out     poolOutcome
	count   int
	cursors [address.Families]cursor
}

// cursor is where the search for a free address goes on. Nothing becomes free while
// addresses are given away.
type cursor struct {
	endpoints bool // those are looked at, too: nothing else is free
	begun     bool
	index     int // of the range
	next      netip.Addr
}

// SharedIn stands for the roots of one namespace that share an address.
func SharedIn(namespace string) model.Object {
	return input.Object(snapshot.KindIngressRoute, snapshot.Name{Namespace: namespace})
}

func (a *assigner) run() {
	stored := 0
	for _, p := range a.pools {
		if p.stored != nil {
			stored += len(p.stored.Records)
		}
	}
	a.taken, a.recorded = make(map[netip.Addr]holder, stored), make(map[netip.Addr][]holder, stored)
	a.has, a.told, a.pooled = make(map[model.Object][]held, len(a.wants)), map[model.Object]*condition.Result[gatewayv1.GatewayConditionReason]{}, map[model.Object]bool{}
	a.admitted = map[[2]string]bool{}
	slices.SortFunc(a.pools, func(x, y *poolBook) int {
		return cmp.Or(cmp.Compare(x.Created, y.Created), cmp.Compare(x.Name, y.Name))
	})
	slices.SortFunc(a.wants, func(x, y *Want) int {
		return cmp.Or(cmp.Compare(x.Created, y.Created), cmp.Compare(x.Owner.Namespace, y.Owner.Namespace),
			cmp.Compare(x.Owner.Name, y.Owner.Name), cmp.Compare(x.Owner.Kind, y.Owner.Kind))
	})
	for _, p := range a.pools {
		if p.stored != nil {
			for _, rec := range p.stored.Records {
				a.recorded[rec.Address] = append(a.recorded[rec.Address], holder{pool: p.Name, owner: rec.Owner})
			}
		}
	}
	for _, p := range a.pools {
		a.keep(p)
	}
	a.judge()
	for _, w := range a.wants {
		if !w.Idle {
			a.giveRequested(w)
		}
	}
	for _, namespace := range a.sharing {
		a.giveShared(namespace)
	}
	for _, w := range a.wants {
		if !w.Idle {
			a.giveAny(w)
		}
	}
	for _, p := range a.pools {
		a.sum(p)
	}
}

// overlapping reports whether other pools may have addresses of a pool.
func (a *assigner) overlapping(p *poolBook) bool {
	return slices.ContainsFunc(a.pools, func(q *poolBook) bool {
		_, some := p.Overlap(q.Pool)
		return q != p && some
	})
}

// keep takes over what a pool's status has recorded, as far as it is still right. A
// pool that is not accepted keeps what it gave: an operator's slip takes no address
// away.
func (a *assigner) keep(p *poolBook) {
	if p.stored == nil {
		return
	}
	for _, text := range p.stored.Garbage {
		p.out.Notes = append(p.out.Notes, "its status had "+field.Quote(text)+", which is not an address: removed")
	}
	for i, rec := range p.stored.Records {
		if i > 0 && rec == p.stored.Records[i-1] {
			continue
		}
		if !p.Has(rec.Address) && !p.Unread || !a.isWanted(p, rec) {
			continue
		}
		if other, is := a.taken[rec.Address]; is {
			p.out.Notes = append(p.out.Notes, "its status gave "+rec.Address.String()+" to "+rec.Owner.Describe()+" too: "+
				other.owner.Describe()+" keeps it, of AddressPool "+other.pool)
			continue
		}
		a.give(p, rec.Address, rec.Owner, true)
	}
}

// isWanted reports whether the owner of a record still wants it.
func (a *assigner) isWanted(p *poolBook, rec pool.Assignment) bool {
	fam := address.FamilyOf(rec.Address)
	if rec.Owner == model.SharingIngressRoutes() {
		return !slices.ContainsFunc(a.has[rec.Owner], func(h held) bool { return h.pool == p.Name && address.FamilyOf(h.address) == fam }) &&
			slices.ContainsFunc(a.sharing, func(namespace string) bool { return a.keepsIn(p, namespace) })
	}
	w := a.wantOf[rec.Owner]
	if w == nil || a.onlyGuests(p, w) || !a.keepsIn(p, rec.Owner.Namespace) || w.Request.pool != "" && w.Request.pool != p.Name {
		return false
	}
	if asked := w.Request.of(fam); len(asked) > 0 && w.Request.problem == "" {
		return slices.Contains(asked, rec.Address)
	}
	if w.Needs[fam] == needNone && w.Request.problem == "" {
		return false
	}
	return !slices.ContainsFunc(a.has[rec.Owner], func(h held) bool { return address.FamilyOf(h.address) == fam })
}

func (a *assigner) give(p *poolBook, address netip.Addr, owner model.Object, kept bool) {
	a.taken[address] = holder{p.Name, owner, kept}
	a.has[owner] = append(a.has[owner], held{address, p.Name, kept})
	p.out.Records = append(p.out.Records, pool.Assignment{Address: address, Owner: owner})
	p.count++
}

// judge says which pools give addresses away.
func (a *assigner) judge() {
	for i, p := range a.pools {
		p.out.Accepted = p.Invalid
		for _, older := range a.pools[:i] {
			if older.out.Accepted.Failed {
				continue
			}
			if both, some := older.Overlap(p.Pool); some {
				p.out.Accepted.Fail(v1alpha1.ReasonOverlap, "spec.addresses: "+both.String()+" are addresses of AddressPool "+older.Name+
					", which is older, too: remove them from one of the two pools")
			}
		}
		if _, endpoints, _ := a.foreignIn(p, true); len(endpoints) > 0 {
			p.out.Notes = append(p.out.Notes, strings.Join(endpoints, ", ")+": endpoints in a pool get no traffic unless their Namespace allows it (fairlead.dev/allow-endpoints), and their addresses are assigned only when no other is free")
		}
		reason, foreign, refuses := a.foreignIn(p, false)
		if len(foreign) == 0 {
			continue
		}
		text, whose := strings.Join(foreign, ", "), "addresses that others have"
		if reason == v1alpha1.ReasonMachineAddress {
			whose = "machines' own addresses"
		}
		if p.count == 0 && refuses {
			p.out.Accepted.Fail(reason, "spec.addresses: "+text+": take "+whose+" out of the pool")
		} else {
			p.out.Notes = append(p.out.Notes, text+": "+whose+" are not assigned: remove them from the pool")
		}
	}
}

// tell notes why an owner lacks something; what is so of both families once.
func (a *assigner) tell(owner model.Object, reason gatewayv1.GatewayConditionReason, message string) {
	if a.told[owner] == nil {
		a.told[owner] = &condition.Result[gatewayv1.GatewayConditionReason]{}
	}
	if told := a.told[owner].Message; told != message && !strings.HasSuffix(told, "; "+message) {
		a.told[owner].Fail(reason, message)
	}
}

// giveRequested gives an owner the addresses that it asks for.
func (a *assigner) giveRequested(w *Want) {
	if w.Request.problem != "" {
		a.pooled[w.Owner] = true
		a.tell(w.Owner, gatewayv1.GatewayReasonAddressNotUsable, w.Request.problem)
	}
	for _, address := range w.Request.addresses {
		a.pooled[w.Owner] = true
		if a.taken[address].owner == w.Owner {
			continue
		}
		p, reason, problem := a.requestable(w, address)
		if problem != "" {
			if w.Owner.Kind != string(snapshot.KindGateway) { // that has one field only
				problem = w.Request.addressPath(address) + problem
			}
			a.tell(w.Owner, reason, problem)
			continue
		}
		a.give(p, address, w.Owner, false)
	}
}

// requestable finds the pool that gives an owner the address that it asks for, or says
// why none does.
func (a *assigner) requestable(w *Want, address netip.Addr) (*poolBook, gatewayv1.GatewayConditionReason, string) {
	const unusable = gatewayv1.GatewayReasonAddressNotUsable
	var pool *poolBook
	for _, p := range a.pools {
		if p.Has(address) && (pool == nil || pool.out.Accepted.Failed && !p.out.Accepted.Failed) {
			pool = p
		}
	}
	if pool == nil {
		return nil, unusable, address.String() + " is in no AddressPool: ask for an address of a pool, or for none"
	}
	of := address.String() + " of AddressPool " + pool.Name
	switch {
	case w.Request.pool != "" && w.Request.pool != pool.Name:
		return nil, unusable, of + " is asked for, and annotation " + v1alpha1.AnnotationPool + " names pool " + field.Quote(w.Request.pool)
	case !a.admits(pool, w.Owner.Namespace):
		return nil, unusable, of + " is not for namespace " + w.Owner.Namespace + ": spec.namespaces of the pool does not select it"
	case pool.out.Accepted.Failed:
		return nil, unusable, of + " cannot be assigned: the pool is not accepted (" + pool.out.Accepted.Reason + ")"
	}
	if other, is := a.taken[address]; is {
		return nil, unusable, of + " belongs to " + other.owner.Describe()
	}
	for o := range a.ownAt(address) { // an endpoint, too: another address does as well
		return nil, unusable, of + " is " + o.What + " itself"
	}
	if other, is := a.leftElsewhere(pool, address); is {
		return nil, gatewayv1.GatewayReasonAddressNotAssigned, of + " is being taken back from " + other.owner.Describe() + " of AddressPool " + other.pool
	}
	if pool.count >= assignmentLimit {
		return nil, gatewayv1.GatewayReasonAddressNotAssigned, of + " cannot be assigned: " + fullText()
	}
	return pool, "", ""
}

// leftElsewhere finds another pool whose status still records an address: until it is
// written anew, somebody may use the address.
func (a *assigner) leftElsewhere(p *poolBook, address netip.Addr) (holder, bool) {
	for _, h := range a.recorded[address] {
		if h.pool != p.Name {
			return h, true
		}
	}
	return holder{}, false
}

func fullText() string {
	return "it has assigned " + strconv.Itoa(assignmentLimit) + " addresses, the limit of a pool: create another pool"
}

// giveShared sees to it that the roots of a namespace have an address to share, of each
// family.
func (a *assigner) giveShared(namespace string) {
	for fam := range address.Families {
		eligible := a.eligible(namespace, fam)
		if slices.ContainsFunc(a.has[model.SharingIngressRoutes()], func(h held) bool {
			return address.FamilyOf(h.address) == fam && a.keepsIn(a.byName[h.pool], namespace)
		}) {
			a.pooled[SharedIn(namespace)] = true
			continue
		}
		a.giveFrom(eligible, fam, SharedIn(namespace), model.SharingIngressRoutes())
	}
}

// sharedPools are the pools whose shared addresses the roots of a namespace have: of
// each family the oldest that has one and admits the namespace.
func (a *assigner) sharedPools(namespace string) (pools [address.Families]string) {
	for _, p := range a.pools {
		for _, h := range a.has[model.SharingIngressRoutes()] {
			if fam := address.FamilyOf(h.address); h.pool == p.Name && pools[fam] == "" && a.keepsIn(p, namespace) {
				pools[fam] = p.Name
			}
		}
	}
	return pools
}

// giveAny gives an owner an address of each family that it needs and lacks.
func (a *assigner) giveAny(w *Want) {
	if w.Needs == [address.Families]need{} {
		return
	}
	var named *poolBook
	if w.Request.pool != "" {
		a.pooled[w.Owner] = true
		var problem string
		if named, problem = a.named(w); problem != "" {
			a.tell(w.Owner, gatewayv1.GatewayReasonAddressNotUsable, "metadata.annotations["+v1alpha1.AnnotationPool+"]: "+problem)
			return
		}
	}
	for fam := range address.Families {
		if w.Needs[fam] == needNone || len(w.Request.of(fam)) > 0 ||
			slices.ContainsFunc(a.has[w.Owner], func(h held) bool { return address.FamilyOf(h.address) == fam }) {
			continue
		}
		var from []*poolBook
		switch {
		case named == nil:
			from = a.eligible(w.Owner.Namespace, fam)
		case len(named.Ranges[fam]) > 0 && named.out.Accepted.Failed:
			a.tell(w.Owner, gatewayv1.GatewayReasonAddressNotUsable, "AddressPool "+named.Name+" is not accepted ("+named.out.Accepted.Reason+") and assigns no addresses")
			continue
		case len(named.Ranges[fam]) > 0:
			from = []*poolBook{named}
		}
		if len(from) == 0 && w.Needs[fam] == needRequired {
			what := "no AddressPool has " + fam.String() + " addresses for namespace " + w.Owner.Namespace + ": create one, or let one select the namespace"
			if asked := a.onRequest(w.Owner.Namespace, fam); named == nil && asked != "" {
				what = "AddressPool " + asked + " gives " + fam.String() + " addresses only on request (spec.assign: OnRequest), and no other pool has addresses for namespace " + w.Owner.Namespace + ": annotate with " + v1alpha1.AnnotationPool + ": " + asked
			}
			if other := address.IPv4 + address.IPv6 - fam; named == nil && w.Needs[other] != needRequired && len(a.eligible(w.Owner.Namespace, other)) > 0 {
				what += "; there are " + other.String() + " addresses, but the first family of a Service cannot be changed: create it again with spec.ipFamilies: [" + other.String() + "]"
			}
			a.tell(w.Owner, gatewayv1.GatewayReasonAddressNotAssigned, what)
			continue
		}
		a.giveFrom(from, fam, w.Owner, w.Owner)
	}
}

// named finds the pool that an owner names.
func (a *assigner) named(w *Want) (*poolBook, string) {
	p := a.byName[w.Request.pool]
	switch {
	case p == nil:
		return nil, "AddressPool " + field.Quote(w.Request.pool) + " not found"
	case !a.admits(p, w.Owner.Namespace):
		return nil, "AddressPool " + p.Name + " is not for namespace " + w.Owner.Namespace + ": its spec.namespaces does not select it"
	}
	return p, ""
}

// eligible are the pools that give an address of a family to whoever needs one in a
// namespace, oldest first.
func (a *assigner) eligible(namespace string, fam address.Family) []*poolBook {
	var pools []*poolBook
	for _, p := range a.pools {
		if !p.out.Accepted.Failed && !p.OnRequest && len(p.Ranges[fam]) > 0 && a.admits(p, namespace) {
			pools = append(pools, p)
		}
	}
	return pools
}

// onRequest names the first pool that gives an address of a family to who asks for it; empty: none.
func (a *assigner) onRequest(namespace string, fam address.Family) string {
	for _, p := range a.pools {
		if !p.out.Accepted.Failed && p.OnRequest && len(p.Ranges[fam]) > 0 && a.admits(p, namespace) {
			return p.Name
		}
	}
	return ""
}

// giveFrom gives the lowest free address of the first pool that has one. Whoever asks
// is told when none has.
func (a *assigner) giveFrom(pools []*poolBook, fam address.Family, asking, owner model.Object) {
	if len(pools) == 0 {
		return
	}
	a.pooled[asking] = true
	var names []string
	for _, p := range pools {
		if address, found := a.lowest(p, fam); found {
			a.give(p, address, owner, false)
			return
		}
		names = append(names, p.Name)
	}
	message := "no " + fam.String() + " address is free in AddressPool " + strings.Join(names, ", ") + ": add addresses to a pool, or delete an owner that no longer needs its address"
	if len(pools) == 1 && pools[0].count >= assignmentLimit {
		message = "AddressPool " + pools[0].Name + " assigns no more addresses: " + fullText()
	}
	a.tell(asking, gatewayv1.GatewayReasonAddressNotAssigned, message)
}

// lowest finds the lowest address of a family that nobody has; where there is none, the lowest one that
// is an endpoint. Its cost follows the addresses that are taken, not the size of the pool.
func (a *assigner) lowest(p *poolBook, fam address.Family) (netip.Addr, bool) {
	if p.count >= assignmentLimit || p.out.Accepted.Failed {
		return netip.Addr{}, false
	}
	c := &p.cursors[fam]
	for {
		for ; c.index < len(p.Ranges[fam]); c.index, c.begun = c.index+1, false {
			r := p.Ranges[fam][c.index]
			if !c.begun {
				c.begun, c.next = true, r.From
			}
			for ; c.next.IsValid() && c.next.Compare(r.To) <= 0; c.next = c.next.Next() {
				if a.isFree(p, c.next) && (c.endpoints || !a.isEndpoint(c.next)) {
					return c.next, true
				}
			}
		}
		if c.endpoints {
			return netip.Addr{}, false
		}
		*c = cursor{endpoints: true}
	}
}

func (a *assigner) isFree(p *poolBook, addr netip.Addr) bool {
	if _, is := a.taken[addr]; is || p.AvoidBuggy && address.IsBuggy(addr) {
		return false
	}
	if _, is := a.isOwn(addr); is {
		return false
	}
	_, left := a.leftElsewhere(p, addr)
	return !left
}

// sum finishes what a pool's status says.
func (a *assigner) sum(p *poolBook) {
	slices.SortFunc(p.out.Records, func(x, y pool.Assignment) int { return x.Address.Compare(y.Address) })
	for fam := range address.Families {
		p.out.Free[fam] = p.Size(fam)
	}
	less := func(addr netip.Addr) {
		if fam := address.FamilyOf(addr); p.Has(addr) && p.out.Free[fam] > 0 && p.out.Free[fam] != ^uint64(0) {
			p.out.Free[fam]--
		}
	}
	for _, rec := range p.out.Records {
		less(rec.Address)
	}
	if a.overlapping(p) {
		for address, h := range a.taken {
			if h.pool != p.Name {
				less(address)
			}
		}
	}
	var last netip.Addr
	for _, o := range a.own {
		if _, is := a.taken[o.Address]; !is && !o.Endpoint && o.Address != last {
			last = o.Address
			less(o.Address)
		}
	}
}

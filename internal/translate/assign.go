package translate

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
)

// assignmentLimit is how many addresses one pool gives away: its status is one object.
const assignmentLimit = 4096

// outcome is what became of an owner's want.
type outcome struct {
	// addresses that are recorded and so may be used, sorted.
	addresses []netip.Addr
	hold      *Hold
	// pooled says that pools care for the owner, whether or not it has an address yet.
	pooled bool
}

// poolOutcome is what became of a pool.
type poolOutcome struct {
	accepted verdict[string]
	notes    []string
	records  []record // the whole new state, sorted
	free     [families]uint64
}

// grant is an address that is recorded, with its owner.
type grant struct {
	pool      string
	owner     model.Object
	listeners []model.ListenerID
	members   []model.Object // that share it, whoever has a port first
}

// assigner gives addresses to owners. Its order is: what is recorded and still right
// is kept; then those get theirs that ask for a certain address; then the others take
// the lowest that is free, older owners first. No address gets two owners, and the same
// input gives the same result in whatever order it is visited.
type assigner struct {
	pools   []*poolBook // oldest first
	byName  map[string]*poolBook
	wants   []*want // oldest first
	wantOf  map[model.Object]*want
	sharing []string // namespaces with root IngressRoutes that share, sorted
	own     []ownAddress
	labels  func(namespace string) map[string]string
	tlsAt   map[string]bool // pools with a shared address at which somebody has TLS
	// refused are owners that share an address and want what they cannot have there.
	refused map[model.Object]*outcome

	taken    map[netip.Addr]holder
	recorded map[netip.Addr][]holder // as stored, right or wrong
	has      map[model.Object][]held
	told     map[model.Object]*verdict[gatewayv1.GatewayConditionReason]
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
	*poolFact
	stored  *recordFact
	out     poolOutcome
	count   int
	cursors [families]cursor
}

// cursor is where the search for a free address goes on. Nothing becomes free while
// addresses are given away.
type cursor struct {
	endpoints bool // those are looked at, too: nothing else is free
	begun     bool
	index     int // of the range
	next      netip.Addr
}

// sharedIn stands for the roots of one namespace that share an address.
func sharedIn(namespace string) model.Object {
	return model.Object{Kind: string(snapshot.KindIngressRoute), Namespace: namespace}
}

func (a *assigner) run() {
	stored := 0
	for _, p := range a.pools {
		if p.stored != nil {
			stored += len(p.stored.records)
		}
	}
	a.taken, a.recorded = make(map[netip.Addr]holder, stored), make(map[netip.Addr][]holder, stored)
	a.has, a.told, a.pooled = make(map[model.Object][]held, len(a.wants)), map[model.Object]*verdict[gatewayv1.GatewayConditionReason]{}, map[model.Object]bool{}
	a.admitted = map[[2]string]bool{}
	slices.SortFunc(a.pools, func(x, y *poolBook) int {
		return cmp.Or(cmp.Compare(x.created, y.created), cmp.Compare(x.name, y.name))
	})
	slices.SortFunc(a.wants, func(x, y *want) int {
		return cmp.Or(cmp.Compare(x.created, y.created), cmp.Compare(x.owner.Namespace, y.owner.Namespace),
			cmp.Compare(x.owner.Name, y.owner.Name), cmp.Compare(x.owner.Kind, y.owner.Kind))
	})
	for _, p := range a.pools {
		if p.stored != nil {
			for _, rec := range p.stored.records {
				a.recorded[rec.address] = append(a.recorded[rec.address], holder{pool: p.name, owner: rec.owner})
			}
		}
	}
	for _, p := range a.pools {
		a.keep(p)
	}
	a.judge()
	for _, w := range a.wants {
		if !w.idle {
			a.giveRequested(w)
		}
	}
	for _, namespace := range a.sharing {
		a.giveShared(namespace)
	}
	for _, w := range a.wants {
		if !w.idle {
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
		_, some := p.overlap(q.poolFact)
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
	for _, text := range p.stored.garbage {
		p.out.notes = append(p.out.notes, "its status had "+quote(text)+", which is no address: removed")
	}
	for i, rec := range p.stored.records {
		if i > 0 && rec == p.stored.records[i-1] {
			continue
		}
		if !p.has(rec.address) && !p.unread || !a.isWanted(p, rec) {
			continue
		}
		if other, is := a.taken[rec.address]; is {
			p.out.notes = append(p.out.notes, "its status gave "+rec.address.String()+" to "+rec.owner.Words()+" too: "+
				other.owner.Words()+" keeps it, of AddressPool "+other.pool)
			continue
		}
		a.give(p, rec.address, rec.owner, true)
	}
}

// isWanted reports whether the owner of a record still wants it.
func (a *assigner) isWanted(p *poolBook, rec record) bool {
	fam := familyOf(rec.address)
	if rec.owner == model.SharingIngressRoutes() {
		return !slices.ContainsFunc(a.has[rec.owner], func(h held) bool { return h.pool == p.name && familyOf(h.address) == fam }) &&
			slices.ContainsFunc(a.sharing, func(namespace string) bool { return a.keepsIn(p, namespace) })
	}
	w := a.wantOf[rec.owner]
	if w == nil || a.onlyGuests(p, w) || !a.keepsIn(p, rec.owner.Namespace) || w.request.pool != "" && w.request.pool != p.name {
		return false
	}
	if asked := w.request.of(fam); len(asked) > 0 && w.request.problem == "" {
		return slices.Contains(asked, rec.address)
	}
	if w.needs[fam] == needNone && w.request.problem == "" {
		return false
	}
	return !slices.ContainsFunc(a.has[rec.owner], func(h held) bool { return familyOf(h.address) == fam })
}

// keepsIn reports whether owners of a namespace may keep what a pool gave them.
func (a *assigner) keepsIn(p *poolBook, namespace string) bool {
	if !a.admits(p, namespace) {
		// It is not known whom a selector means that cannot be read.
		var unread bool
		selectorProblem(p.namespaces, "", func(string, string) { unread = true })
		return unread
	}
	return true
}

func (a *assigner) admits(p *poolBook, namespace string) bool {
	if p.namespaces == nil {
		return true
	}
	key := [2]string{p.name, namespace}
	is, known := a.admitted[key]
	if !known {
		is = matches(p.namespaces, a.labels(namespace))
		a.admitted[key] = is
	}
	return is
}

func (a *assigner) give(p *poolBook, address netip.Addr, owner model.Object, kept bool) {
	a.taken[address] = holder{p.name, owner, kept}
	a.has[owner] = append(a.has[owner], held{address, p.name, kept})
	p.out.records = append(p.out.records, record{address, owner})
	p.count++
}

// judge says which pools give addresses away.
func (a *assigner) judge() {
	for i, p := range a.pools {
		p.out.accepted = p.invalid
		for _, older := range a.pools[:i] {
			if older.out.accepted.failed {
				continue
			}
			if both, some := older.overlap(p.poolFact); some {
				p.out.accepted.fail(v1alpha1.ReasonOverlap, "spec.addresses: "+both.String()+" are addresses of AddressPool "+older.name+
					", which is older, too: take them out of one of the two")
			}
		}
		if _, endpoints, _ := a.foreignIn(p, true); len(endpoints) > 0 {
			p.out.notes = append(p.out.notes, strings.Join(endpoints, ", ")+": endpoints in a pool get no traffic unless their Namespace allows it (fairlead.dev/allow-endpoints), and are given away when nothing else is free")
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
			p.out.accepted.fail(reason, "spec.addresses: "+text+": take "+whose+" out of the pool")
		} else {
			p.out.notes = append(p.out.notes, text+": "+whose+" are not given away: take them out of the pool")
		}
	}
}

// tell notes why an owner lacks something; what is so of both families once.
func (a *assigner) tell(owner model.Object, reason gatewayv1.GatewayConditionReason, message string) {
	if a.told[owner] == nil {
		a.told[owner] = &verdict[gatewayv1.GatewayConditionReason]{}
	}
	if told := a.told[owner].message; told != message && !strings.HasSuffix(told, "; "+message) {
		a.told[owner].fail(reason, message)
	}
}

// giveRequested gives an owner the addresses that it asks for.
func (a *assigner) giveRequested(w *want) {
	if w.request.problem != "" {
		a.pooled[w.owner] = true
		a.tell(w.owner, gatewayv1.GatewayReasonAddressNotUsable, w.request.problem)
	}
	for _, address := range w.request.addresses {
		a.pooled[w.owner] = true
		if a.taken[address].owner == w.owner {
			continue
		}
		p, reason, problem := a.requestable(w, address)
		if problem != "" {
			if w.owner.Kind != string(snapshot.KindGateway) { // that has one field only
				problem = w.request.addressPath(address) + problem
			}
			a.tell(w.owner, reason, problem)
			continue
		}
		a.give(p, address, w.owner, false)
	}
}

// requestable finds the pool that gives an owner the address that it asks for, or says
// why none does.
func (a *assigner) requestable(w *want, address netip.Addr) (*poolBook, gatewayv1.GatewayConditionReason, string) {
	const unusable = gatewayv1.GatewayReasonAddressNotUsable
	var pool *poolBook
	for _, p := range a.pools {
		if p.has(address) && (pool == nil || pool.out.accepted.failed && !p.out.accepted.failed) {
			pool = p
		}
	}
	if pool == nil {
		return nil, unusable, address.String() + " is in no AddressPool: ask for an address of a pool, or for none"
	}
	of := address.String() + " of AddressPool " + pool.name
	switch {
	case w.request.pool != "" && w.request.pool != pool.name:
		return nil, unusable, of + " is asked for, and annotation " + v1alpha1.AnnotationPool + " names pool " + quote(w.request.pool)
	case !a.admits(pool, w.owner.Namespace):
		return nil, unusable, of + " is not for namespace " + w.owner.Namespace + ": spec.namespaces of the pool does not select it"
	case pool.out.accepted.failed:
		return nil, unusable, of + " cannot be given away: the pool is not accepted (" + pool.out.accepted.reason + ")"
	}
	if other, is := a.taken[address]; is {
		return nil, unusable, of + " belongs to " + other.owner.Words()
	}
	for o := range a.ownAt(address) { // an endpoint, too: another address does as well
		return nil, unusable, of + " is " + o.what + " itself"
	}
	if other, is := a.leftElsewhere(pool, address); is {
		return nil, gatewayv1.GatewayReasonAddressNotAssigned, of + " is being taken back from " + other.owner.Words() + " of AddressPool " + other.pool
	}
	if pool.count >= assignmentLimit {
		return nil, gatewayv1.GatewayReasonAddressNotAssigned, of + " cannot be given away: " + fullText()
	}
	return pool, "", ""
}

// leftElsewhere finds another pool whose status still records an address: until it is
// written anew, somebody may use the address.
func (a *assigner) leftElsewhere(p *poolBook, address netip.Addr) (holder, bool) {
	for _, h := range a.recorded[address] {
		if h.pool != p.name {
			return h, true
		}
	}
	return holder{}, false
}

func fullText() string {
	return "it has given away " + strconv.Itoa(assignmentLimit) + " addresses, the most that a pool can: make another pool"
}

// giveShared sees to it that the roots of a namespace have an address to share, of each
// family.
func (a *assigner) giveShared(namespace string) {
	for fam := range families {
		eligible := a.eligible(namespace, fam)
		if slices.ContainsFunc(a.has[model.SharingIngressRoutes()], func(h held) bool {
			return familyOf(h.address) == fam && a.keepsIn(a.byName[h.pool], namespace)
		}) {
			a.pooled[sharedIn(namespace)] = true
			continue
		}
		a.giveFrom(eligible, fam, sharedIn(namespace), model.SharingIngressRoutes())
	}
}

// sharedPools are the pools whose shared addresses the roots of a namespace have: of
// each family the oldest that has one and admits the namespace.
func (a *assigner) sharedPools(namespace string) (pools [families]string) {
	for _, p := range a.pools {
		for _, h := range a.has[model.SharingIngressRoutes()] {
			if fam := familyOf(h.address); h.pool == p.name && pools[fam] == "" && a.keepsIn(p, namespace) {
				pools[fam] = p.name
			}
		}
	}
	return pools
}

// giveAny gives an owner an address of each family that it needs and lacks.
func (a *assigner) giveAny(w *want) {
	if w.needs == [families]need{} {
		return
	}
	var named *poolBook
	if w.request.pool != "" {
		a.pooled[w.owner] = true
		var problem string
		if named, problem = a.named(w); problem != "" {
			a.tell(w.owner, gatewayv1.GatewayReasonAddressNotUsable, "metadata.annotations["+v1alpha1.AnnotationPool+"]: "+problem)
			return
		}
	}
	for fam := range families {
		if w.needs[fam] == needNone || len(w.request.of(fam)) > 0 ||
			slices.ContainsFunc(a.has[w.owner], func(h held) bool { return familyOf(h.address) == fam }) {
			continue
		}
		var from []*poolBook
		switch {
		case named == nil:
			from = a.eligible(w.owner.Namespace, fam)
		case len(named.ranges[fam]) > 0 && named.out.accepted.failed:
			a.tell(w.owner, gatewayv1.GatewayReasonAddressNotUsable, "AddressPool "+named.name+" is not accepted ("+named.out.accepted.reason+") and gives nothing away")
			continue
		case len(named.ranges[fam]) > 0:
			from = []*poolBook{named}
		}
		if len(from) == 0 && w.needs[fam] == needRequired {
			what := "no AddressPool has " + fam.String() + " addresses for namespace " + w.owner.Namespace + ": make one, or let one select the namespace"
			if asked := a.onRequest(w.owner.Namespace, fam); named == nil && asked != "" {
				what = "AddressPool " + asked + " gives " + fam.String() + " addresses only to who asks for them (spec.assign: OnRequest), and no other one has any for namespace " + w.owner.Namespace + ": annotate with " + v1alpha1.AnnotationPool + ": " + asked
			}
			if other := ipv4 + ipv6 - fam; named == nil && w.needs[other] != needRequired && len(a.eligible(w.owner.Namespace, other)) > 0 {
				what += "; there are " + other.String() + " addresses, but the first family of a Service cannot be changed: create it again with spec.ipFamilies: [" + other.String() + "]"
			}
			a.tell(w.owner, gatewayv1.GatewayReasonAddressNotAssigned, what)
			continue
		}
		a.giveFrom(from, fam, w.owner, w.owner)
	}
}

// named finds the pool that an owner names.
func (a *assigner) named(w *want) (*poolBook, string) {
	p := a.byName[w.request.pool]
	switch {
	case p == nil:
		return nil, "AddressPool " + quote(w.request.pool) + " not found"
	case !a.admits(p, w.owner.Namespace):
		return nil, "AddressPool " + p.name + " is not for namespace " + w.owner.Namespace + ": its spec.namespaces does not select it"
	}
	return p, ""
}

// eligible are the pools that give an address of a family to whoever needs one in a
// namespace, oldest first.
func (a *assigner) eligible(namespace string, fam family) []*poolBook {
	var pools []*poolBook
	for _, p := range a.pools {
		if !p.out.accepted.failed && !p.onRequest && len(p.ranges[fam]) > 0 && a.admits(p, namespace) {
			pools = append(pools, p)
		}
	}
	return pools
}

// onRequest names the first pool that gives an address of a family to who asks for it; empty: none.
func (a *assigner) onRequest(namespace string, fam family) string {
	for _, p := range a.pools {
		if !p.out.accepted.failed && p.onRequest && len(p.ranges[fam]) > 0 && a.admits(p, namespace) {
			return p.name
		}
	}
	return ""
}

// giveFrom gives the lowest free address of the first pool that has one. Whoever asks
// is told when none has.
func (a *assigner) giveFrom(pools []*poolBook, fam family, asking, owner model.Object) {
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
		names = append(names, p.name)
	}
	message := "no " + fam.String() + " address is free in AddressPool " + strings.Join(names, ", ") + ": add addresses to a pool, or delete who has one and needs none"
	if len(pools) == 1 && pools[0].count >= assignmentLimit {
		message = "AddressPool " + pools[0].name + " gives nothing away: " + fullText()
	}
	a.tell(asking, gatewayv1.GatewayReasonAddressNotAssigned, message)
}

// lowest finds the lowest address of a family that nobody has; where there is none, the lowest one that
// is an endpoint. Its cost follows the addresses that are taken, not the size of the pool.
func (a *assigner) lowest(p *poolBook, fam family) (netip.Addr, bool) {
	if p.count >= assignmentLimit || p.out.accepted.failed {
		return netip.Addr{}, false
	}
	c := &p.cursors[fam]
	for {
		for ; c.index < len(p.ranges[fam]); c.index, c.begun = c.index+1, false {
			r := p.ranges[fam][c.index]
			if !c.begun {
				c.begun, c.next = true, r.from
			}
			for ; c.next.IsValid() && c.next.Compare(r.to) <= 0; c.next = c.next.Next() {
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

func (a *assigner) isFree(p *poolBook, address netip.Addr) bool {
	if _, is := a.taken[address]; is || p.avoidBuggy && isBuggy(address) {
		return false
	}
	if _, is := a.isOwn(address); is {
		return false
	}
	_, left := a.leftElsewhere(p, address)
	return !left
}

// sum finishes what a pool's status says.
func (a *assigner) sum(p *poolBook) {
	slices.SortFunc(p.out.records, func(x, y record) int { return x.address.Compare(y.address) })
	for fam := range families {
		p.out.free[fam] = p.size(fam)
	}
	less := func(address netip.Addr) {
		if fam := familyOf(address); p.has(address) && p.out.free[fam] > 0 && p.out.free[fam] != ^uint64(0) {
			p.out.free[fam]--
		}
	}
	for _, rec := range p.out.records {
		less(rec.address)
	}
	if a.overlapping(p) {
		for address, h := range a.taken {
			if h.pool != p.name {
				less(address)
			}
		}
	}
	var last netip.Addr
	for _, o := range a.own {
		if _, is := a.taken[o.address]; !is && !o.endpoint && o.address != last {
			last = o.address
			less(o.address)
		}
	}
}

// outcomeOf is what an owner shows. Asking is who asked, owner who has the addresses:
// they differ for roots that share.
func (a *assigner) outcomeOf(asking, owner model.Object, mine func(held) bool) *outcome {
	o := &outcome{pooled: a.pooled[asking]}
	told := a.told[asking]
	var problems verdict[gatewayv1.GatewayConditionReason]
	if told != nil {
		problems = *told
	}
	for _, h := range a.has[owner] {
		switch {
		case !mine(h):
		case h.kept:
			o.addresses = append(o.addresses, h.address)
			o.pooled = true
		default:
			problems.fail(gatewayv1.GatewayReasonAddressNotAssigned, h.address.String()+" of AddressPool "+h.pool+" is being recorded")
			o.pooled = true
		}
	}
	slices.SortFunc(o.addresses, netip.Addr.Compare)
	if problems.failed {
		o.hold = &Hold{Reason: problems.reason, Message: limit(problems.message)}
	}
	if len(o.addresses) == 0 && o.hold == nil && !o.pooled {
		return nil
	}
	return o
}

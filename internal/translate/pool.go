package translate

import (
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// poolTables are the AddressPools, each judged for itself.
type poolTables struct {
	pools   *memo.Table[string, *poolFact]
	records *memo.Table[string, *recordFact] // what their stored statuses say
	// ranges are the addresses of all pools.
	ranges *memo.Table[memo.Unit, [families][]addrRange]
}

func newPoolTables(g *memo.Graph, in *inputTables) *poolTables {
	t := &poolTables{}
	t.pools = memo.NewTable(g, "AddressPool's spec", func(c *memo.Context, name string) (*poolFact, bool) {
		f := makePoolFact(in.pools.Get(c, snapshot.Name{Name: name}))
		return f, f != nil
	}, memo.Reads(in.pools))
	t.records = memo.NewTable(g, "AddressPool's record", func(c *memo.Context, name string) (*recordFact, bool) {
		f := makeRecordFact(in.pools.Get(c, snapshot.Name{Name: name}))
		return f, f != nil
	}, memo.Reads(in.pools))
	t.ranges = memo.NewTable(g, "addresses of AddressPools", func(c *memo.Context, _ memo.Unit) ([families][]addrRange, bool) {
		var ranges [families][]addrRange
		for _, name := range in.poolNames.Get(c, memo.Unit{}) {
			for fam := range families {
				ranges[fam] = append(ranges[fam], t.pools.Get(c, name).ranges[fam]...)
			}
		}
		for fam := range families {
			ranges[fam] = mergeRanges(ranges[fam])
		}
		return ranges, true
	}, memo.Reads(in.poolNames, t.pools))
	return t
}

// poolFact is what an AddressPool's spec says, judged for itself. Of a pool that is
// invalid it holds what could be read: such a pool gives nothing away, and what it
// gave stays.
type poolFact struct {
	name    string
	created int64
	invalid verdict[string]

	ranges [families][]addrRange // sorted, apart from each other
	// unread says that a text of spec.addresses is no range, so that it is not known
	// which addresses the pool has.
	unread     bool
	avoidBuggy bool
	onRequest  bool

	namespaces *metav1.LabelSelector
	sharing    *metav1.LabelSelector // namespaces that may share VIPs with each other; nil: none
	machines   *metav1.LabelSelector
	most       int // of machines that announce; 0: all
	mode       model.Announce
	path       model.PathOptions
	interfaces []string
}

func makePoolFact(o *v1alpha1.AddressPool) *poolFact {
	if o == nil {
		return nil
	}
	f := &poolFact{
		name: o.Name, created: o.CreationTimestamp.Unix(), avoidBuggy: o.Spec.AvoidBuggy,
		namespaces: o.Spec.Namespaces, machines: o.Spec.Machines, mode: model.AnnounceBGP,
	}
	if o.Spec.MaxMachines != nil {
		f.most = int(*o.Spec.MaxMachines)
	}
	fail := func(path, problem string) { f.invalid.fail(v1alpha1.ReasonInvalid, path+": "+problem) }
	var ranges [families][]addrRange
	for i, text := range o.Spec.Addresses {
		r, err := parseRange(text)
		if err != nil {
			fail(at("spec.addresses", i), quote(text)+": "+err.Error())
			f.unread = true
			continue
		}
		ranges[familyOf(r.from)] = append(ranges[familyOf(r.from)], r)
	}
	for i := range ranges {
		f.ranges[i] = mergeRanges(ranges[i])
	}
	if len(o.Spec.Addresses) == 0 {
		fail("spec.addresses", "at least one is needed")
		f.unread = true
	}
	switch o.Spec.Assign {
	case "", v1alpha1.AssignAutomatic:
	case v1alpha1.AssignOnRequest:
		f.onRequest = true
	default:
		fail("spec.assign", quote(string(o.Spec.Assign))+" must be Automatic or OnRequest")
	}
	switch o.Spec.Announce {
	case "", v1alpha1.AnnounceBGP:
	case v1alpha1.AnnounceL2:
		f.mode = model.AnnounceL2
	default:
		fail("spec.announce", quote(string(o.Spec.Announce))+" must be BGP or L2")
	}
	selectorProblem(o.Spec.Namespaces, "spec.namespaces", fail)
	selectorProblem(o.Spec.Machines, "spec.machines", fail)
	if o.Spec.Sharing != nil {
		f.sharing = &o.Spec.Sharing.Namespaces
		selectorProblem(f.sharing, "spec.sharing.namespaces", fail)
	}
	path := makePath(o.Spec.BGP, "spec.bgp.", fail)
	interfaces := makeInterfaces(o.Spec.Interfaces, fail)
	if f.mode == model.AnnounceBGP {
		f.path = path
	} else {
		f.interfaces = interfaces
	}
	return f
}

func selectorProblem(s *metav1.LabelSelector, path string, fail func(path, problem string)) {
	if _, err := metav1.LabelSelectorAsSelector(s); s != nil && err != nil {
		fail(path, err.Error())
	}
}

// interfaceLimit is the longest name that Linux gives an interface (IFNAMSIZ without
// its end).
const interfaceLimit = 15

func makeInterfaces(names []string, fail func(path, problem string)) []string {
	var interfaces []string
	for i, name := range names {
		if name == "" || len(name) > interfaceLimit || name == "." || name == ".." || !printable(name) || strings.ContainsAny(name, "/:") {
			fail(at("spec.interfaces", i), quote(name)+" is no name of an interface")
			continue
		}
		interfaces = append(interfaces, name)
	}
	return interfaces
}

// has reports whether an address is one of the pool's.
func (f *poolFact) has(a netip.Addr) bool {
	if f.avoidBuggy && isBuggy(a) {
		return false
	}
	return slices.ContainsFunc(f.ranges[familyOf(a)], func(r addrRange) bool { return r.contains(a) })
}

// size is how many addresses of a family the pool has.
func (f *poolFact) size(fam family) uint64 {
	var n uint64
	for _, r := range f.ranges[fam] {
		size := r.size()
		if f.avoidBuggy {
			size -= r.buggy()
		}
		if n+size < n {
			return ^uint64(0)
		}
		n += size
	}
	return n
}

// overlap is the first range that both pools have.
func (f *poolFact) overlap(g *poolFact) (addrRange, bool) {
	for fam := range families {
		a, b := f.ranges[fam], g.ranges[fam]
		for len(a) > 0 && len(b) > 0 {
			if o, some := a[0].overlap(b[0]); some {
				return o, true
			}
			if a[0].to.Less(b[0].to) {
				a = a[1:]
			} else {
				b = b[1:]
			}
		}
	}
	return addrRange{}, false
}

// record is one assignment as a pool's stored status has it.
type record struct {
	address netip.Addr
	owner   model.Object
}

// recordFact is what a pool's stored status says.
type recordFact struct {
	records []record // sorted by address, then by owner
	garbage []string // addresses that cannot be read
}

func makeRecordFact(o *v1alpha1.AddressPool) *recordFact {
	if o == nil || len(o.Status.Assignments) == 0 {
		return nil
	}
	f := &recordFact{}
	for _, a := range o.Status.Assignments {
		address, err := parsePlain(a.Address)
		if err != nil {
			f.garbage = append(f.garbage, a.Address)
			continue
		}
		f.records = append(f.records, record{address, model.Object{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}})
	}
	slices.SortFunc(f.records, func(a, b record) int {
		if c := a.address.Compare(b.address); c != 0 {
			return c
		}
		return a.owner.Compare(b.owner)
	})
	slices.Sort(f.garbage)
	return f
}

// takesAll reports whether a selector leaves nothing out.
func takesAll(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// matches reports whether a selector takes an object with labels. One that is left out
// takes all, one that cannot be read none.
func matches(s *metav1.LabelSelector, of map[string]string) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

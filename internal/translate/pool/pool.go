package pool

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
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// Tables are the AddressPools, each judged for itself.
type Tables struct {
	Pools   *memo.Table[string, *Pool]
	Records *memo.Table[string, *Record] // what their stored statuses say
	// Ranges are the addresses of all pools.
	Ranges *memo.Table[memo.Unit, [address.Families][]address.Range]
}

// New adds the tables of AddressPools to a graph.
func New(g *memo.Graph, in *input.Tables) *Tables {
	t := &Tables{}
	t.Pools = memo.NewTable(g, "AddressPool's spec", func(c *memo.Context, name string) (*Pool, bool) {
		f := newPool(in.Pools.Get(c, snapshot.Name{Name: name}))
		return f, f != nil
	}, memo.Reads(in.Pools))
	t.Records = memo.NewTable(g, "AddressPool's record", func(c *memo.Context, name string) (*Record, bool) {
		f := newRecord(in.Pools.Get(c, snapshot.Name{Name: name}))
		return f, f != nil
	}, memo.Reads(in.Pools))
	t.Ranges = memo.NewTable(g, "addresses of AddressPools", func(c *memo.Context, _ memo.Unit) ([address.Families][]address.Range, bool) {
		var ranges [address.Families][]address.Range
		for _, name := range in.PoolNames.Get(c, memo.Unit{}) {
			for fam := range address.Families {
				ranges[fam] = append(ranges[fam], t.Pools.Get(c, name).Ranges[fam]...)
			}
		}
		for fam := range address.Families {
			ranges[fam] = address.MergeRanges(ranges[fam])
		}
		return ranges, true
	}, memo.Reads(in.PoolNames, t.Pools))
	return t
}

// Pool is what an AddressPool's spec says, judged for itself. Of a pool that is
// invalid it holds what could be read: such a pool gives nothing away, and what it
// gave stays.
type Pool struct {
	Name    string
	Created int64
	Invalid condition.Result[string]

	Ranges [address.Families][]address.Range // sorted, apart from each other
	// Unread says that a text of spec.addresses is no range, so that it is not known
	// which addresses the pool has.
	Unread     bool
	AvoidBuggy bool
	OnRequest  bool

	Namespaces *metav1.LabelSelector
	Sharing    *metav1.LabelSelector // namespaces that may share VIPs with each other; nil: none
	Machines   *metav1.LabelSelector
	Most       int // of machines that announce; 0: all
	Mode       model.Announce
	Path       model.PathOptions
	Interfaces []string
}

func newPool(o *v1alpha1.AddressPool) *Pool {
	if o == nil {
		return nil
	}
	f := &Pool{
		Name: o.Name, Created: o.CreationTimestamp.Unix(), AvoidBuggy: o.Spec.AvoidBuggy,
		Namespaces: o.Spec.Namespaces, Machines: o.Spec.Machines, Mode: model.AnnounceBGP,
	}
	if o.Spec.MaxMachines != nil {
		f.Most = int(*o.Spec.MaxMachines)
	}
	fail := func(path, problem string) { f.Invalid.Fail(v1alpha1.ReasonInvalid, path+": "+problem) }
	var ranges [address.Families][]address.Range
	for i, text := range o.Spec.Addresses {
		r, err := address.ParseRange(text)
		if err != nil {
			fail(field.At("spec.addresses", i), field.Quote(text)+": "+err.Error())
			f.Unread = true
			continue
		}
		ranges[address.FamilyOf(r.From)] = append(ranges[address.FamilyOf(r.From)], r)
	}
	for i := range ranges {
		f.Ranges[i] = address.MergeRanges(ranges[i])
	}
	if len(o.Spec.Addresses) == 0 {
		fail("spec.addresses", "at least one is needed")
		f.Unread = true
	}
	switch o.Spec.Assign {
	case "", v1alpha1.AssignAutomatic:
	case v1alpha1.AssignOnRequest:
		f.OnRequest = true
	default:
		fail("spec.assign", field.Quote(string(o.Spec.Assign))+" must be Automatic or OnRequest")
	}
	switch o.Spec.Announce {
	case "", v1alpha1.AnnounceBGP:
	case v1alpha1.AnnounceL2:
		f.Mode = model.AnnounceL2
	default:
		fail("spec.announce", field.Quote(string(o.Spec.Announce))+" must be BGP or L2")
	}
	SelectorProblem(o.Spec.Namespaces, "spec.namespaces", fail)
	SelectorProblem(o.Spec.Machines, "spec.machines", fail)
	if o.Spec.Sharing != nil {
		f.Sharing = &o.Spec.Sharing.Namespaces
		SelectorProblem(f.Sharing, "spec.sharing.namespaces", fail)
	}
	path := MakePath(o.Spec.BGP, "spec.bgp.", fail)
	interfaces := makeInterfaces(o.Spec.Interfaces, fail)
	if f.Mode == model.AnnounceBGP {
		f.Path = path
	} else {
		f.Interfaces = interfaces
	}
	return f
}

// SelectorProblem reports a label selector that Kubernetes would refuse.
func SelectorProblem(s *metav1.LabelSelector, path string, fail func(path, problem string)) {
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
		if name == "" || len(name) > interfaceLimit || name == "." || name == ".." || !field.Printable(name) || strings.ContainsAny(name, "/:") {
			fail(field.At("spec.interfaces", i), field.Quote(name)+" is not a valid interface name")
			continue
		}
		interfaces = append(interfaces, name)
	}
	return interfaces
}

// Has reports whether an address is one of the pool's.
func (f *Pool) Has(a netip.Addr) bool {
	if f.AvoidBuggy && address.IsBuggy(a) {
		return false
	}
	return slices.ContainsFunc(f.Ranges[address.FamilyOf(a)], func(r address.Range) bool { return r.Contains(a) })
}

// Size is how many addresses of a family the pool has.
func (f *Pool) Size(fam address.Family) uint64 {
	var n uint64
	for _, r := range f.Ranges[fam] {
		size := r.Size()
		if f.AvoidBuggy {
			size -= r.Buggy()
		}
		if n+size < n {
			return ^uint64(0)
		}
		n += size
	}
	return n
}

// Overlap is the first range that both pools have.
func (f *Pool) Overlap(g *Pool) (address.Range, bool) {
	for fam := range address.Families {
		a, b := f.Ranges[fam], g.Ranges[fam]
		for len(a) > 0 && len(b) > 0 {
			if o, some := a[0].Overlap(b[0]); some {
				return o, true
			}
			if a[0].To.Less(b[0].To) {
				a = a[1:]
			} else {
				b = b[1:]
			}
		}
	}
	return address.Range{}, false
}

// Assignment is one assignment as a pool's stored status has it.
type Assignment struct {
	Address netip.Addr
	Owner   model.Object
}

// Record is what a pool's stored status says.
type Record struct {
	Records []Assignment // sorted by address, then by owner
	Garbage []string     // addresses that cannot be read
}

func newRecord(o *v1alpha1.AddressPool) *Record {
	if o == nil || len(o.Status.Assignments) == 0 {
		return nil
	}
	f := &Record{}
	for _, a := range o.Status.Assignments {
		address, err := address.ParsePlain(a.Address)
		if err != nil {
			f.Garbage = append(f.Garbage, a.Address)
			continue
		}
		f.Records = append(f.Records, Assignment{address, model.Object{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}})
	}
	slices.SortFunc(f.Records, func(a, b Assignment) int {
		if c := a.Address.Compare(b.Address); c != 0 {
			return c
		}
		return a.Owner.Compare(b.Owner)
	})
	slices.Sort(f.Garbage)
	return f
}

// TakesAll reports whether a selector leaves nothing out.
func TakesAll(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// Matches reports whether a selector takes an object with labels. One that is left out
// takes all, one that cannot be read none.
func Matches(s *metav1.LabelSelector, of map[string]string) bool {
	if s == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(of))
}

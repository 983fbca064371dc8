package nft

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

// Drops by reason: named counters.
const (
	dropSource  = "source-not-allowed"
	dropNewFlow = "new-flow-limit"
	dropBackend = "no-backend"
)

// exprs is the body of a rule.
type exprs []expr.Any

func (f *family) is() exprs {
	return exprs{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
	}
}

func (f *family) load(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.words * 4}
}

func loadPort(offset, register uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2}
}

const sourcePort, targetPort = 0, 2

// loadFrontend loads the frontend that the packet is for.
func (f *family) loadFrontend() exprs {
	return exprs{
		f.load(f.target, f.vip()),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.vip() + f.words},
		loadPort(targetPort, f.vip()+f.words+1),
	}
}

// loadOriginal loads the frontend that the packet's flow was for, of packets both ways.
func (f *family) loadOriginal() exprs {
	return exprs{
		// In this table the kernel takes four registers for it, of IPv4 too; the others are
		// written afterwards.
		&expr.Ct{Key: expr.CtKeyDST, Register: f.vip()},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.vip() + f.words},
		&expr.Ct{Key: expr.CtKeyPROTODST, Register: f.vip() + f.words + 1},
	}
}

// loadBackend loads where the packet goes now.
func (f *family) loadBackend() exprs {
	return exprs{f.load(f.target, f.chosen()), loadPort(targetPort, f.chosen()+f.words)}
}

func contains(set string, register uint32) expr.Any {
	return &expr.Lookup{SourceRegister: register, SetName: set}
}

func find(set string, from, to uint32) expr.Any {
	return &expr.Lookup{SourceRegister: from, SetName: set, DestRegister: to, IsDestRegSet: true}
}

// verdict looks a verdict up; without one the next rule follows.
func verdict(set string, from uint32) expr.Any {
	return &expr.Lookup{SourceRegister: from, SetName: set, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true}
}

func count(name string) expr.Any { return &expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name} }

func drop(reason string) exprs {
	return exprs{count(reason), &expr.Verdict{Kind: expr.VerdictDrop}}
}

func join(parts ...exprs) exprs {
	var all exprs
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// translated matches packets towards backends of flows whose destination was rewritten.
func translated() exprs {
	const rewritten = 1 << 5 // IPS_DST_NAT
	return exprs{
		&expr.Ct{Key: expr.CtKeyDIRECTION, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0}},
		&expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(rewritten), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
	}
}

// to sends the flow to the backend that was chosen, if it may have flows; it counts it.
func (f *family) to() exprs {
	return exprs{
		contains("flows"+f.suffix, f.vip()),
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.proto), RegAddrMin: f.chosen(), RegProtoMin: f.chosen() + f.words},
	}
}

// choosing are the rules that choose the backend of a new flow.
func (s spec) choosing(n names) []exprs {
	f := familyOf(s.key.VIP)
	var rules []exprs
	if s.newFlows > 0 {
		limit := &expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(s.newFlows), Over: true, Unit: expr.LimitTimeSecond, Burst: s.newFlows}
		rules = append(rules, join(exprs{limit}, drop(dropNewFlow)))
	}
	switch {
	case len(s.shares) == 0:
	case s.local:
		self := exprs{f.load(f.target, f.chosen()), loadPort(targetPort, f.chosen()+f.words), contains("flows"+f.suffix, f.vip())}
		return append(rules, join(f.loadFrontend(), self, exprs{&expr.Verdict{Kind: expr.VerdictAccept}}), drop(dropBackend))
	default:
		if s.affinity > 0 {
			rules = append(rules, join(f.loadFrontend(), exprs{
				f.load(f.source, f.scratch()),
				find(n.affinity, f.scratch(), f.chosen()),
				contains(n.usable, f.chosen()),
			}, f.to()), s.forgetting(n))
		}
		rules = append(rules, join(f.loadFrontend(), s.hashing(f), exprs{find(n.ranges, f.scratch(), f.chosen())}, f.to()))
	}
	return append(rules, drop(dropBackend))
}

// hashing hashes the client into the first scratch register.
func (s spec) hashing(f *family) exprs {
	load := exprs{f.load(f.source, f.scratch())}
	length := f.words * 4
	if s.hash == model.HashFiveTuple {
		load = append(load, loadPort(sourcePort, f.scratch()+f.words))
		length += 4
	}
	return append(load,
		&expr.Hash{SourceRegister: f.scratch(), DestRegister: f.scratch(), Length: length, Modulus: modulus, Seed: s.seed(), Type: expr.HashTypeJenkins},
		&expr.Byteorder{SourceRegister: f.scratch(), DestRegister: f.scratch(), Op: expr.ByteorderHton, Len: 4, Size: 4})
}

// seed stands for what of the tuple is the frontend's. All machines have the same.
func (s spec) seed() uint32 {
	h := fnv.New32a()
	if s.hash != model.HashSource {
		_, _ = h.Write([]byte(frontendKey(s.key)))
	}
	return h.Sum32() | 1 // the kernel takes a random one for 0
}

// guarding are the rules that keep clients out.
func (s spec) guarding(n names) []exprs {
	f := familyOf(s.key.VIP)
	return []exprs{join(exprs{
		f.load(f.source, f.scratch()),
		&expr.Lookup{SourceRegister: f.scratch(), SetName: n.sources, Invert: true},
	}, drop(dropSource))}
}

// opDelete is NFT_DYNSET_OP_DELETE (Linux 5.4).
const opDelete = 2

// forgetting takes away what is remembered of a client whose backend is not usable: an
// update of an element keeps its value.
func (s spec) forgetting(n names) exprs {
	f := familyOf(s.key.VIP)
	return join(f.loadBackend(), exprs{
		f.load(f.source, f.scratch()),
		&expr.Dynset{SrcRegKey: f.scratch(), SrcRegData: f.chosen(), SetName: n.affinity, Operation: opDelete},
	})
}

// touching are the rules that remember a client's backend for as long again.
func (s spec) touching(n names) []exprs {
	f := familyOf(s.key.VIP)
	return []exprs{join(f.loadBackend(), exprs{
		f.load(f.source, f.scratch()),
		&expr.Dynset{SrcRegKey: f.scratch(), SrcRegData: f.chosen(), SetName: n.affinity, Operation: uint32(unix.NFT_DYNSET_OP_UPDATE), Timeout: s.affinity},
	})}
}

// names of a frontend's objects. All begin with the frontend, so that they can be told
// apart, and all but that of its clients' backends end with what they are made of.
type names struct {
	choose, guard, touch              string // chains
	ranges, usable, sources, affinity string // sets
}

func (s spec) names() names {
	own := "f-" + id(s.key) + "-" + s.content()
	return names{
		choose: own, guard: own + "-guard", touch: own + "-touch",
		ranges: own + "-ranges", usable: own + "-usable", sources: own + "-sources",
		affinity: "f-" + id(s.key) + "-affinity",
	}
}

// set is a set with its elements.
type set struct {
	*nftables.Set
	elements []nftables.SetElement
}

// maxClients whose backend is remembered, of one frontend.
const maxClients = 1 << 18

// sets of the frontend.
func (s spec) sets(t *nftables.Table) []set {
	f, n := familyOf(s.key.VIP), s.names()
	var all []set
	if len(s.shares) > 0 && !s.local {
		ranges := set{Set: &nftables.Set{Table: t, Name: n.ranges, Interval: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: f.backend}}
		for i, x := range s.shares {
			if i > 0 {
				ranges.elements = append(ranges.elements, nftables.SetElement{Key: number(x.from), IntervalEnd: true})
			}
			ranges.elements = append(ranges.elements, nftables.SetElement{Key: number(x.from), Val: []byte(backendKey(x.backend))})
		}
		ranges.elements = append(ranges.elements, nftables.SetElement{Key: number(modulus), IntervalEnd: true})
		all = append(all, ranges)
	}
	if s.affinity > 0 && len(s.shares) > 0 && !s.local {
		usable := set{Set: &nftables.Set{Table: t, Name: n.usable, KeyType: f.backend}}
		for _, x := range s.shares {
			usable.elements = append(usable.elements, nftables.SetElement{Key: []byte(backendKey(x.backend))})
		}
		all = append(all, usable)
	}
	if s.affinity > 0 && !s.local {
		all = append(all, set{Set: &nftables.Set{
			Table: t, Name: n.affinity, IsMap: true, Dynamic: true, HasTimeout: true, Timeout: 24 * time.Hour, Size: maxClients,
			KeyType: f.address, DataType: f.backend,
		}})
	}
	if s.guarded {
		sources := set{Set: &nftables.Set{Table: t, Name: n.sources, Interval: true, KeyType: f.address}}
		for _, x := range s.sources {
			sources.elements = append(sources.elements, nftables.SetElement{Key: x.first.AsSlice()})
			if end := x.last.Next(); end.IsValid() {
				sources.elements = append(sources.elements, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
			}
		}
		all = append(all, sources)
	}
	return all
}

func number(x uint32) []byte { return binary.BigEndian.AppendUint32(nil, x) }

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// tableName of ours, in the family inet.
const tableName = "fairlead-ipvs"

const mapMarks = "marks" // frontend -> mark of its service

// family is what differs between IPv4 and IPv6.
type family struct {
	suffix   string
	proto    byte
	length   uint32 // of an address
	target   uint32 // its offset in the IP header
	frontend nftables.SetDatatype
}

var families = []family{
	{"4", unix.NFPROTO_IPV4, 4, 16, nftables.MustConcatSetType(nftables.TypeIPAddr, nftables.TypeInetProto, nftables.TypeInetService)},
	{"6", unix.NFPROTO_IPV6, 16, 24, nftables.MustConcatSetType(nftables.TypeIP6Addr, nftables.TypeInetProto, nftables.TypeInetService)},
}

func (f family) of(a netip.Addr) bool { return a.Is4() == (f.length == 4) }

func encode(k model.FrontendKey) []byte {
	b := append(k.VIP.AsSlice(), lookup.Number(k.Transport), 0, 0, 0)
	return append(binary.BigEndian.AppendUint16(b, k.Port), 0, 0)
}

func (f family) decode(b []byte) (k model.FrontendKey, ok bool) {
	n := int(f.length)
	if len(b) < n+6 {
		return k, false
	}
	k.VIP, _ = netip.AddrFromSlice(b[:n])
	k.Transport = model.TCP
	if b[n] == lookup.Number(model.UDP) {
		k.Transport = model.UDP
	}
	k.Port = binary.BigEndian.Uint16(b[n+4:])
	return k, true
}

// marker gives packets for frontends marks.
type marker interface {
	// read returns the marks that an earlier process left too.
	read() (map[model.FrontendKey]uint32, error)
	// write makes was into marks, at once.
	write(was, marks map[model.FrontendKey]uint32) error
	// remove takes away what marks.
	remove() error
}

// rules is the marker that is a table of nftables.
type rules struct {
	conn  *nftables.Conn
	table *nftables.Table
}

func newRules() (*rules, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for nftables: %w", err)
	}
	return &rules{conn: conn, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}}, nil
}

func (r *rules) marks(f family) *nftables.Set {
	return &nftables.Set{Table: r.table, ID: 1, Name: mapMarks + f.suffix, IsMap: true, KeyType: f.frontend, DataType: nftables.TypeMark}
}

func (r *rules) exists() (bool, error) {
	tables, err := r.conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("list nftables: %w", explainRules(err))
	}
	return slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName }), nil
}

// prepare makes the table if it is not there.
func (r *rules) prepare() error {
	there, err := r.exists()
	if err != nil || there {
		return err
	}
	r.conn.AddTable(r.table)
	chain := r.conn.AddChain(&nftables.Chain{
		Name: "mark", Table: r.table, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityMangle,
	})
	for _, f := range families {
		marks := r.marks(f)
		if err := r.conn.AddSet(marks, nil); err != nil {
			return err
		}
		const reg = unix.NFT_REG32_00
		words := f.length / 4
		r.conn.AddRule(&nftables.Rule{Table: r.table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{f.proto}},
			&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: f.target, Len: f.length},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg + words},
			&expr.Payload{DestRegister: reg + words + 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Lookup{SourceRegister: reg, SetName: marks.Name, DestRegister: reg, IsDestRegSet: true},
			&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: reg},
		}})
	}
	if err := r.conn.Flush(); err != nil {
		return fmt.Errorf("make table inet %s: %w", tableName, explainRules(err))
	}
	return nil
}

func (r *rules) read() (map[model.FrontendKey]uint32, error) {
	marks := map[model.FrontendKey]uint32{}
	there, err := r.exists()
	if err != nil || !there {
		return marks, err
	}
	for _, f := range families {
		elements, err := r.conn.GetSetElements(r.marks(f))
		if err != nil {
			return nil, fmt.Errorf("list map %s of table inet %s: %w", mapMarks+f.suffix, tableName, err)
		}
		for _, e := range elements {
			if k, ok := f.decode(e.Key); ok && len(e.Val) >= 4 {
				marks[k] = binaryutil.NativeEndian.Uint32(e.Val)
			}
		}
	}
	return marks, nil
}

// maxElements fit into one message: an attribute has at most 64 KiB.
const maxElements = 500

func (r *rules) write(was, marks map[model.FrontendKey]uint32) error {
	if err := r.prepare(); err != nil {
		return err
	}
	for _, f := range families {
		var gone, fresh []nftables.SetElement
		for k, m := range was {
			if f.of(k.VIP) && marks[k] != m {
				gone = append(gone, nftables.SetElement{Key: encode(k)})
			}
		}
		for k, m := range marks {
			if f.of(k.VIP) && was[k] != m {
				fresh = append(fresh, nftables.SetElement{Key: encode(k), Val: binaryutil.NativeEndian.PutUint32(m)})
			}
		}
		for some := range slices.Chunk(gone, maxElements) {
			if err := r.conn.SetDeleteElements(r.marks(f), some); err != nil {
				return err
			}
		}
		for some := range slices.Chunk(fresh, maxElements) {
			if err := r.conn.SetAddElements(r.marks(f), some); err != nil {
				return err
			}
		}
	}
	if err := r.conn.Flush(); err != nil {
		return fmt.Errorf("mark packets for services of IPVS in table inet %s: %w", tableName, explainRules(err))
	}
	return nil
}

func (r *rules) remove() error {
	there, err := r.exists()
	if err != nil || !there {
		return err
	}
	r.conn.DelTable(r.table)
	if err := r.conn.Flush(); err != nil {
		return fmt.Errorf("remove table inet %s: %w", tableName, err)
	}
	return nil
}

func explainRules(err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (CAP_NET_ADMIN is required)", err)
	}
	return fmt.Errorf("%w: load the module nf_tables, with the family inet (modprobe nf_tables): %w", err, errors.ErrUnsupported)
}

package nft

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// batchFrontends change in one transaction, unless one of them is refused.
	batchFrontends = 128
	// batchElements fit into one message: an attribute has at most 64 KiB.
	batchElements = 200
	// socketBytes hold an acknowledgement for each message of a transaction.
	socketBytes = 64 << 20
)

// kernel is our table in a network namespace.
type kernel struct {
	conn   *nftables.Conn
	table  *nftables.Table
	probed atomic.Bool // and found
}

func open() (*kernel, error) {
	buffers := func(c *netlink.Conn) error {
		return errors.Join(c.SetReadBuffer(socketBytes), c.SetWriteBuffer(socketBytes))
	}
	// A socket for each transaction: what an unfinished one leaves in it is never taken for the next one's.
	conn, err := nftables.New(nftables.WithSockOptions(buffers))
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for nftables: %w", err)
	}
	return &kernel{conn: conn, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}}, nil
}

// probe is nil if the kernel has nf_tables. What it lacks of expressions shows when rules
// are made.
func (k *kernel) probe() error {
	if k.probed.Load() {
		return nil
	}
	if _, err := k.conn.ListTablesOfFamily(nftables.TableFamilyINet); err != nil {
		return fmt.Errorf("nftables: list tables: %w", explain(err))
	}
	k.probed.Store(true)
	return nil
}

// exists reports whether the table is there, and as this program lays it out.
func (k *kernel) exists() (there, known bool, err error) {
	tables, err := k.conn.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, false, fmt.Errorf("list nftables: %w", explain(err))
	}
	if !slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == tableName }) {
		return false, false, nil
	}
	sets, err := k.conn.GetSets(k.table)
	if err != nil {
		return false, false, fmt.Errorf("list the sets of table inet %s: %w", tableName, err)
	}
	names := map[string]bool{}
	for _, s := range sets {
		names[s.Name] = true
	}
	wanted, chains, _ := base(k.table)
	for _, s := range wanted {
		if !names[s.Name] {
			return true, false, nil
		}
	}
	rules, err := ruleBodies()
	if err != nil {
		return false, false, err
	}
	for _, c := range chains {
		if len(rules[c.Name]) == 0 {
			return true, false, nil
		}
	}
	return true, true, nil
}

func (k *kernel) chains() (map[string]bool, error) {
	all, err := k.conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list the chains of table inet %s: %w", tableName, err)
	}
	names := map[string]bool{}
	for _, c := range all {
		if c.Table.Name == tableName {
			names[c.Name] = true
		}
	}
	return names, nil
}

// ruleBodies returns the expressions of our table's rules by chain, as the kernel writes
// them: the library (0.3.0) cannot read directions of conntrack.
func ruleBodies() (map[string][]string, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for nftables: %w", err)
	}
	defer func() { _ = c.Close() }()
	table, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_RULE_TABLE, Data: []byte(tableName + "\x00")}})
	if err != nil {
		return nil, err
	}
	messages, err := c.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{byte(nftables.TableFamilyINet), unix.NFNETLINK_V0, 0, 0}, table...),
	})
	if err != nil {
		return nil, fmt.Errorf("list the rules of table inet %s: %w", tableName, err)
	}
	bodies := map[string][]string{}
	for _, m := range messages {
		ad, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return nil, fmt.Errorf("list the rules of table inet %s: %w", tableName, err)
		}
		var chain, body, of string
		for ad.Next() {
			switch ad.Type() {
			case unix.NFTA_RULE_TABLE:
				of = ad.String()
			case unix.NFTA_RULE_CHAIN:
				chain = ad.String()
			case unix.NFTA_RULE_EXPRESSIONS:
				body = string(ad.Bytes())
			}
		}
		if of == tableName {
			bodies[chain] = append(bodies[chain], body)
		}
	}
	return bodies, nil
}

// prepare makes the table with what all frontends share, if it is not there.
func (k *kernel) prepare() error {
	there, known, err := k.exists()
	if err != nil || known {
		return err
	}
	if there {
		k.conn.DelTable(k.table)
	}
	k.conn.AddTable(k.table)
	for _, name := range []string{dropSource, dropNewFlow, dropBackend} {
		k.conn.AddObj(&nftables.CounterObj{Table: k.table, Name: name})
	}
	sets, chains, rules := base(k.table)
	for _, s := range sets {
		if err := k.addSet(s); err != nil {
			return err
		}
	}
	for _, c := range chains {
		k.conn.AddChain(c)
		k.addRules(c.Name, rules[c.Name])
	}
	if err := k.conn.Flush(); err != nil {
		return fmt.Errorf("make table inet %s: %w", tableName, explain(err))
	}
	return nil
}

// remove takes the table away.
func (k *kernel) remove() error {
	there, _, err := k.exists()
	if err != nil || !there {
		return err
	}
	k.conn.DelTable(k.table)
	if err := k.conn.Flush(); err != nil {
		return fmt.Errorf("remove table inet %s: %w", tableName, err)
	}
	return nil
}

// read returns what the kernel has, by frontend.
func (k *kernel) read() (map[string]*objects, error) {
	found := map[string]*objects{}
	of := func(id string) *objects {
		if found[id] == nil {
			found[id] = newObjects()
		}
		return found[id]
	}
	chains, err := k.chains()
	if err != nil {
		return nil, err
	}
	for name := range chains {
		if id, ok := owner(name); ok {
			of(id).chains[name] = true
		}
	}
	sets, err := k.conn.GetSets(k.table)
	if err != nil {
		return nil, fmt.Errorf("list the sets of table inet %s: %w", tableName, err)
	}
	for _, s := range sets {
		if id, ok := owner(s.Name); ok {
			of(id).sets[s.Name] = true
		}
	}
	for _, f := range both {
		for _, name := range slices.Concat(verdictMaps, frontends, pairs) {
			elements, err := k.elements(name + f.suffix)
			if err != nil {
				return nil, err
			}
			for _, e := range elements {
				key, _, ok := f.parseFrontend(string(e.Key))
				if !ok {
					continue
				}
				to := ""
				if e.VerdictData != nil {
					to = e.VerdictData.Chain
				} else if slices.Contains(verdictMaps, name) {
					to = parseVerdict(e.Val)
				}
				of(id(key)).elements[element{name + f.suffix, string(e.Key)}] = to
			}
		}
	}
	return found, nil
}

func (k *kernel) elements(name string) ([]nftables.SetElement, error) {
	elements, err := k.conn.GetSetElements(&nftables.Set{Table: k.table, Name: name})
	if err != nil {
		return nil, fmt.Errorf("list set %s of table inet %s: %w", name, tableName, err)
	}
	return elements, nil
}

// apply makes changes, each in one transaction, and returns those that were refused.
func (k *kernel) apply(changes []change) map[string]error {
	refused := map[string]error{}
	for batch := range slices.Chunk(changes, batchFrontends) {
		k.try(batch, refused)
	}
	return refused
}

func (k *kernel) try(changes []change, refused map[string]error) {
	err := k.commit(changes)
	switch {
	case err == nil:
	case len(changes) == 1:
		refused[changes[0].id] = fmt.Errorf("change the rules of %s: %w", changes[0].key, explain(err))
	default:
		half := len(changes) / 2
		k.try(changes[:half], refused)
		k.try(changes[half:], refused)
	}
}

func (k *kernel) commit(changes []change) error {
	added, deleted := map[string][]nftables.SetElement{}, map[string][]nftables.SetElement{}
	for _, c := range changes {
		if err := k.build(c); err != nil {
			return err
		}
		for e, to := range c.to.elements {
			if was, there := c.from.elements[e]; there && was == to {
				continue
			} else if there {
				deleted[e.set] = append(deleted[e.set], nftables.SetElement{Key: []byte(e.key)})
			}
			added[e.set] = append(added[e.set], entry(e, to))
		}
		for e := range c.from.elements {
			if _, stays := c.to.elements[e]; !stays {
				deleted[e.set] = append(deleted[e.set], nftables.SetElement{Key: []byte(e.key)})
			}
		}
	}
	if err := k.each(deleted, k.conn.SetDeleteElements); err != nil {
		return err
	}
	if err := k.each(added, k.conn.SetAddElements); err != nil {
		return err
	}
	for _, c := range changes {
		for _, name := range missing(c.to.chains, c.from.chains) {
			k.conn.DelChain(&nftables.Chain{Table: k.table, Name: name})
		}
		for _, name := range missing(c.to.sets, c.from.sets) {
			k.conn.DelSet(&nftables.Set{Table: k.table, Name: name})
		}
	}
	return k.conn.Flush()
}

// build makes the chains and sets of the frontend that are not there.
func (k *kernel) build(c change) error {
	if len(c.to.chains) == 0 {
		return nil
	}
	add := missing(c.from.sets, c.to.sets)
	for _, s := range c.spec.sets(k.table) {
		if slices.Contains(add, s.Name) {
			if err := k.addSet(s); err != nil {
				return err
			}
		}
	}
	n := c.spec.names()
	for _, name := range missing(c.from.chains, c.to.chains) {
		k.conn.AddChain(&nftables.Chain{Table: k.table, Name: name})
		switch name {
		case n.choose:
			k.addRules(name, c.spec.choosing(n))
		case n.guard:
			k.addRules(name, c.spec.guarding(n))
		case n.touch:
			k.addRules(name, c.spec.touching(n))
		}
	}
	return nil
}

// entry is an element of a map or set.
func entry(e element, to string) nftables.SetElement {
	x := nftables.SetElement{Key: []byte(e.key)}
	if to != "" {
		kind := expr.VerdictGoto
		if !strings.HasPrefix(e.set, mapChoose) && !strings.HasPrefix(e.set, mapAnswer) {
			kind = expr.VerdictJump
		}
		x.VerdictData = &expr.Verdict{Kind: kind, Chain: to}
	}
	return x
}

func (k *kernel) each(elements map[string][]nftables.SetElement, do func(*nftables.Set, []nftables.SetElement) error) error {
	for name, all := range elements {
		for some := range slices.Chunk(all, batchElements) {
			if err := do(&nftables.Set{Table: k.table, Name: name}, some); err != nil {
				return err
			}
		}
	}
	return nil
}

func (k *kernel) addSet(s set) error {
	// An ID of our own: the library's come from a variable that all connections share.
	s.ID = 1 << 31
	if err := k.conn.AddSet(s.Set, nil); err != nil {
		return err
	}
	for some := range slices.Chunk(s.elements, batchElements) {
		if err := k.conn.SetAddElements(&nftables.Set{Table: k.table, Name: s.Name, IsMap: s.IsMap}, some); err != nil {
			return err
		}
	}
	return nil
}

func (k *kernel) addRules(chain string, rules []exprs) {
	for _, r := range rules {
		k.conn.AddRule(&nftables.Rule{Table: k.table, Chain: &nftables.Chain{Name: chain}, Exprs: r})
	}
}

// parseVerdict returns the chain in the data of a verdict.
func parseVerdict(data []byte) string {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return ""
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_VERDICT_CHAIN {
			return ad.String()
		}
	}
	return ""
}

// explain adds what an error of the kernel means here.
func explain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (CAP_NET_ADMIN is required)", err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w: the kernel lacks something of nf_tables, nft_chain_nat, nft_nat, nft_masq, nft_hash, nft_ct or nft_limit, or is older than 5.10: %w", err, errors.ErrUnsupported)
	}
	return err
}

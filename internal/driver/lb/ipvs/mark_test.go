package ipvs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/lb/lbtest"
	"fairlead.dev/internal/lookup"
	"fairlead.dev/internal/model"
)

// filters is a marker for a kernel whose nf_tables does not know IP: filters of tc at every
// interface, remembered in a directory.
type filters string

func (f filters) path() string { return filepath.Join(string(f), "marks.json") }

func (f filters) read() (map[model.FrontendKey]uint32, error) {
	marks := map[model.FrontendKey]uint32{}
	text, err := os.ReadFile(f.path())
	if errors.Is(err, fs.ErrNotExist) {
		return marks, nil
	}
	byName := map[string]uint32{}
	if err == nil {
		err = json.Unmarshal(text, &byName)
	}
	for name, m := range byName {
		k, err := model.ParseFrontend(name)
		if err != nil {
			return nil, err
		}
		marks[k] = m
	}
	return marks, err
}

func (f filters) write(_, marks map[model.FrontendKey]uint32) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Type() != "veth" {
			continue
		}
		ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_INGRESS, Handle: netlink.MakeHandle(0xffff, 0)}}
		_ = netlink.QdiscDel(ingress)
		if err := netlink.QdiscAdd(ingress); err != nil {
			return fmt.Errorf("add the ingress of %s: %w", l.Attrs().Name, err)
		}
		number := uint16(0)
		for k, m := range marks {
			number++
			action := netlink.NewSkbEditAction()
			action.Mark = &m
			transport := nl.IPProto(lookup.Number(k.Transport))
			kind := uint16(unix.ETH_P_IP)
			if k.VIP.Is6() {
				kind = unix.ETH_P_IPV6
			}
			err := netlink.FilterAdd(&netlink.Flower{
				FilterAttrs: netlink.FilterAttrs{LinkIndex: l.Attrs().Index, Parent: ingress.Handle, Priority: number, Protocol: kind},
				EthType:     kind, IPProto: &transport, DestIP: net.IP(k.VIP.AsSlice()), DestPort: k.Port, Actions: []netlink.Action{action},
			})
			if err != nil {
				return fmt.Errorf("add a filter for %s: %w", k, err)
			}
		}
	}
	byName := map[string]uint32{}
	for k, m := range marks {
		byName[k.String()] = m
	}
	text, err := json.Marshal(byName)
	return errors.Join(err, os.WriteFile(f.path(), text, 0o600))
}

func (f filters) remove() error {
	return errors.Join(f.write(nil, nil), os.Remove(f.path()))
}

// TestRules: packets get the marks of their frontends, and no others do.
func TestRules(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	lbtest.InNamespace(t, func() error {
		r, err := newRules()
		if err != nil {
			return err
		}
		marks := map[model.FrontendKey]uint32{}
		for i, vip := range []string{"192.0.2.10", "2001:db8:1::10"} {
			marks[model.FrontendKey{VIP: netip.MustParseAddr(vip), Transport: model.UDP, Port: 53}] = markBase + uint32(i) + 1
		}
		other := maps.Clone(marks)
		for k := range marks {
			k.Port++
			other[k] = markBase + 9
		}
		for _, step := range []struct{ was, marks map[model.FrontendKey]uint32 }{{nil, marks}, {marks, other}, {other, marks}} {
			if err := r.write(step.was, step.marks); err != nil {
				return err
			}
			if got, err := r.read(); err != nil || !maps.Equal(got, step.marks) {
				t.Errorf("got %v, want %v: %v", got, step.marks, err)
			}
		}
		if err := counted(t, marks); err != nil {
			return err
		}
		if err := errors.Join(r.remove(), r.remove()); err != nil {
			return err
		}
		if got, err := r.read(); err != nil || len(got) != 0 {
			t.Errorf("removed, and there are %v: %v", got, err)
		}
		return nil
	})
}

// counted sends a datagram to every frontend of the namespace's own, and to a port beside
// it, and counts those that arrive with each mark.
func counted(t *testing.T, marks map[model.FrontendKey]uint32) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Name: "observer", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	for _, m := range marks {
		name := fmt.Sprintf("m%x", m)
		c.AddObj(&nftables.CounterObj{Table: table, Name: name})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: nl.Uint32Attr(m)},
			&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: name},
		}})
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for k := range marks {
		bits := k.VIP.BitLen()
		address := &netlink.Addr{IPNet: &net.IPNet{IP: k.VIP.AsSlice(), Mask: net.CIDRMask(bits, bits)}, Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(lo, address); err != nil {
			return err
		}
	}
	send := func(k model.FrontendKey) error {
		s, err := net.Dial("udp", netip.AddrPortFrom(k.VIP, k.Port).String())
		if err != nil {
			return err
		}
		_, err = s.Write([]byte("x"))
		return errors.Join(err, s.Close())
	}
	for k, m := range marks {
		beside := k
		beside.Port++
		sent, got := uint64(0), uint64(0)
		// An address that has just come may take the kernel a moment.
		for deadline := time.Now().Add(time.Minute); got == 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				return fmt.Errorf("no packet of %s arrived with its mark", k)
			}
			sent++
			if err := errors.Join(send(beside), send(k)); err != nil {
				continue
			}
			o, err := c.GetObject(&nftables.CounterObj{Table: table, Name: fmt.Sprintf("m%x", m)})
			if err != nil {
				return err
			}
			got = o.(*nftables.CounterObj).Packets
		}
		if got > sent {
			t.Errorf("%d packets arrived with the mark of %s, and %d were sent to it", got, k, sent)
		}
	}
	return nil
}

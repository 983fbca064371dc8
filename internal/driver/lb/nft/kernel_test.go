package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"

	"fairlead.dev/internal/driver/lb/lbtest"
	"fairlead.dev/internal/model"
)

func many(n int) model.Balancing {
	b := model.Balancing{Machine: "lb", Frontends: map[model.FrontendKey]*model.Balanced{}}
	for i := range n {
		k := model.FrontendKey{VIP: netip.MustParseAddr("192.0.2.10"), Transport: model.TCP, Port: uint16(1000 + i)}
		b.Frontends[k] = &model.Balanced{
			Frontend: &model.Frontend{FrontendKey: k, Machines: []string{"lb"}},
			Backends: []model.FrontendBackend{{Address: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1, HopWeight: 1}},
		}
	}
	return b
}

// TestRefusedByTheKernel: of a transaction that the kernel refuses, only the frontend that
// is to blame is refused, and it comes when nothing hinders it any longer.
func TestRefusedByTheKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	lbtest.InNamespace(t, func() error {
		p, err := New(Config{})
		if err != nil {
			return err
		}
		for _, name := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0); err != nil {
				return err
			}
		}
		if err := p.Set(many(1)); err != nil {
			return err
		}
		all := many(300)
		var bad model.FrontendKey
		for k := range all.Frontends {
			if k.Port == 1234 {
				bad = k
			}
		}
		// Somebody has a set of another type by the name that one of them needs.
		s, _, _ := compile(all, all.Frontends[bad])
		table := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
		hindrance := &nftables.Set{Table: table, Name: s.names().ranges, KeyType: nftables.TypeIPAddr}
		c, err := nftables.New()
		if err == nil {
			err = errors.Join(c.AddSet(hindrance, nil), c.Flush())
		}
		if err != nil {
			return err
		}
		if err := p.Set(all); err != nil {
			return err
		}
		balanced := 0
		for _, o := range p.Observed() {
			switch {
			case o.State == model.FrontendBalanced:
				balanced++
			case o.FrontendKey != bad || !strings.Contains(o.Message, "change the rules of tcp://192.0.2.10:1234"):
				t.Errorf("%s is %s: %s", o.FrontendKey, o.State, o.Message)
			}
		}
		if balanced != 299 {
			t.Errorf("%d of 300 are balanced, want all but one", balanced)
		}
		c.DelSet(hindrance)
		if err := errors.Join(c.Flush(), p.Repair()); err != nil {
			return err
		}
		for _, o := range p.Observed() {
			if o.State != model.FrontendBalanced {
				t.Errorf("at the end %s is %s: %s", o.FrontendKey, o.State, o.Message)
			}
		}
		return p.Close(false)
	})
}

// TestForwarding: without it a frontend is refused, and says which setting it needs.
func TestForwarding(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: a network namespace")
	}
	lbtest.InNamespace(t, func() error {
		p, err := New(Config{})
		if err != nil {
			return err
		}
		b := many(1)
		for k, f := range b.Frontends {
			for vip, setting := range map[string]string{"192.0.2.10": "net/ipv4/ip_forward", "2001:db8::1": "net/ipv6/conf/all/forwarding"} {
				k.VIP = netip.MustParseAddr(vip)
				g := *f.Frontend
				g.FrontendKey = k
				f := &model.Balanced{Frontend: &g, Backends: f.Backends}
				for value, want := range map[string]bool{"0": false, "1": true} {
					if err := os.WriteFile("/proc/sys/"+setting, []byte(value), 0); err != nil {
						return err
					}
					err := p.Supports(f)
					if (err == nil) != want || !want && (!errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), strings.ReplaceAll(setting, "/", "."))) {
						t.Errorf("%s=%s: %v", setting, value, err)
					}
				}
			}
		}
		return nil
	})
}

func TestShares(t *testing.T) {
	a, b, c := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80"), netip.MustParseAddrPort("10.0.0.3:80")
	for name, x := range map[string]struct {
		weights []uint32
		want    string
	}{
		"equal":      {[]uint32{1, 1}, "10.0.0.1:80@0 10.0.0.2:80@32768"},
		"thirds":     {[]uint32{1, 1, 1}, "10.0.0.1:80@0 10.0.0.2:80@21845 10.0.0.3:80@43690"},
		"huge":       {[]uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1}, "10.0.0.1:80@0 10.0.0.2:80@21845 10.0.0.3:80@43690"},
		"too-little": {[]uint32{1, 1 << 31, 1 << 31}, "10.0.0.2:80@0 10.0.0.3:80@32768"},
		"none":       {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range shares([]netip.AddrPort{a, b, c}[:len(x.weights)], x.weights) {
				got = append(got, fmt.Sprintf("%s@%d", s.backend, s.from))
			}
			if strings.Join(got, " ") != x.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), x.want)
			}
		})
	}
}

func TestSpans(t *testing.T) {
	var prefixes []netip.Prefix
	for _, p := range []string{"10.1.0.0/16", "10.0.0.0/16", "10.0.5.0/24", "192.0.2.7/24", "255.255.255.0/24", "fd00::/8", "198.51.100.1/32"} {
		prefixes = append(prefixes, netip.MustParsePrefix(p))
	}
	for is4, want := range map[bool]string{
		true:  "[{10.0.0.0 10.1.255.255} {192.0.2.0 192.0.2.255} {198.51.100.1 198.51.100.1} {255.255.255.0 255.255.255.255}]",
		false: "[{fd00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff}]",
	} {
		var got []struct{ First, Last netip.Addr }
		for _, s := range spans(prefixes, is4) {
			got = append(got, struct{ First, Last netip.Addr }{s.first, s.last})
		}
		if fmt.Sprint(got) != want {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	if got := spans([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, true); len(got) != 1 || got[0].last.Next().IsValid() {
		t.Errorf("everybody is %v", got)
	}
}

// TestAffinityIsAtLeastASecond: shorter ones would be for ever in the kernel.
func TestAffinityIsAtLeastASecond(t *testing.T) {
	b := many(1)
	for _, f := range b.Frontends {
		f.Frontend.Affinity = time.Microsecond
		if s, _, _ := compile(b, f); s.affinity != time.Second {
			t.Errorf("it lasts %s", s.affinity)
		}
	}
}

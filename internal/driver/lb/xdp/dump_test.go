package xdp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"fairlead.dev/internal/driver/bpf"
)

// dump writes the maps that the agent writes as text, with names for numbers of layout.h.
func dump(d *DataPlane) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	m := &d.k.maps
	type span struct{ base, size uint32 }
	tables := map[span]bool{}
	var fk bpfFrontendKey
	var fv bpfFrontend
	for i := m.Frontends.Iterate(); i.Next(&fk, &fv); {
		add("frontend %s/%d port %d: index %d rows %d+%d hash %d affinity %d limit %d quic %#x%s", fk.Vip.address(), fk.Protocol, bpf.NetworkPort(fk.Port),
			fv.Index, fv.Rows, fv.Mask+1, fv.Hash, fv.Affinity, fv.Limit, fv.Quic, flags(uint64(fv.Flags), "balanced", "sources", "settling", "affinity", "quic", "unready", "limited"))
		if fv.Flags&1 != 0 {
			tables[span{fv.Rows, fv.Mask + 1}] = true
		}
	}
	for t := range tables {
		shares := map[[3]uint32]int{}
		for i := range t.size {
			r := d.k.row(t.base + i)
			shares[[3]uint32{r[0]}]++
		}
		var list []string
		for r, n := range shares {
			list = append(list, fmt.Sprintf("%d:%d", r[0], n))
		}
		slices.Sort(list)
		add("rows %d+%d: first %s", t.base, t.size, strings.Join(list, " "))
	}
	for i := range m.Backends.MaxEntries() {
		var b bpfBackend
		if err := m.Backends.Lookup(i, &b); err == nil && b.Id != 0 {
			mode := []string{"none", "local", "nat", "geneve", "ipip", "l2"}[b.Mode]
			add("backend %d: %s %d mode %s remote %s hop %d generation %d rows %d%s", i, b.Address.address(), bpf.NetworkPort(b.Port), mode,
				b.Remote.address(), b.NextHop, b.Generation, int64(b.Table)-1, backendFlags(b.Flags))
		}
	}
	for i := range m.NextHops.MaxEntries() {
		var h bpfNextHop
		if err := m.NextHops.Lookup(i, &h); err == nil && h != (bpfNextHop{}) {
			add("next hop %d: to %x from %x mtu %d%s", i, h.To, h.From, h.Mtu, flags(uint64(h.Flags), "redirect"))
		}
	}
	for h := range hooked {
		list := d.attached.At(h)
		for device, at := range list {
			if where, err := bpf.Where(h, at.Link); err == nil && where == device {
				add("%s at %s", h, at.Name)
			}
		}
	}
	pairs(m.Locals, func(k bpfLocalKey, v bpfLocal) {
		add("local of %d: %s %d%s", k.Frontend, v.Address.address(), bpf.NetworkPort(v.Port), backendFlags(v.Flags))
	})
	pairs(m.Hops, func(_ uint64, v bpfHop) {
		add("hop: %s hop %d%s", v.Remote.address(), v.NextHop, backendFlags(v.Flags))
	})
	pairs(m.Machines, func(k bpfAddress, v uint32) { add("machine %s hop %d", k.address(), v) })
	pairs(m.Vips, func(k bpfAddress, v uint32) {
		is := ""
		if v&vipGuarded != 0 {
			is = " guarded"
		}
		add("vip %s: %d%s", k.address(), v&^vipGuarded, is)
	})
	pairs(m.Others, func(k bpfFrontendKey, _ uint32) { add("other %s", keyOf(k)) })
	pairs(m.Sources, func(k bpfSourceKey, _ uint32) {
		add("source of %d: %s/%d", k.Frontend, k.Client.address(), k.Prefix-32)
	})
	pairs(m.QuicServers, func(k bpfQuicServerKey, v uint32) { add("quic server of %d: %x backend %d", k.Frontend, k.Id, v) })
	slices.Sort(out)
	return strings.Join(out, "\n") + "\n"
}

func pairs[K, V any](m *ebpf.Map, f func(K, V)) {
	var k K
	var v V
	for i := m.Iterate(); i.Next(&k, &v); {
		f(k, v)
	}
}

func backendFlags(v uint8) string { return flags(uint64(v), "here", "ready", "new", "proxy") }

func flags(v uint64, names ...string) string {
	var b strings.Builder
	for i, name := range names {
		if v&(1<<i) != 0 {
			b.WriteString(" " + name)
		}
	}
	return b.String()
}

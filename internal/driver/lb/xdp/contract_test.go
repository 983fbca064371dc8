package xdp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/driver/lb/lbtest"
	"fairlead.dev/internal/model"
)

// contractPins names the directory of pins to the data plane under test.
const contractPins = "FAIRLEAD_XDP_TEST_PINS"

// contractSizes have room for a thousand frontends.
var contractSizes = Sizes{
	Frontends: 2048, Backends: 8192, Rows: 6 << 20, NextHops: 64, Sources: 4096, Flows: 16384, Fresh: 4096, NAT: 16384, Owned: 4096, Fragments: 64, Affinity: 1024,
}

// contracted is the data plane of a child of the contract.
var contracted *DataPlane

var subject = lbtest.Subject{
	Kind: model.DataPlaneXDP, StateDir: contractPins, Mode: model.ModeNAT, Watches: true,
	New: func() (lbtest.DataPlane, error) {
		if _, err := netlink.LinkByName("l0"); err != nil { // a machine that nobody is joined to
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "l0"}, PeerName: "far"}); err != nil {
				return nil, err
			}
		}
		interfaces := []string{"l0"}
		if _, err := netlink.LinkByName("l1"); err == nil {
			interfaces = append(interfaces, "l1")
		}
		var err error
		contracted, err = New(Config{
			Dir: os.Getenv(contractPins), Interfaces: interfaces, Sizes: contractSizes,
			Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})),
		})
		return contracted, err
	},
	Dump: contractDump, Meddle: contractMeddle, Damage: contractDamage,
	Repair: func(p lbtest.DataPlane) error {
		p.(*DataPlane).look(true)
		return nil
	},
	Cannot: map[lbtest.Feature]string{
		lbtest.MaxFlows: "IPVS does", lbtest.Scheduler: "IPVS does", lbtest.AffinityPorts: "each frontend remembers clients for itself",
	},
}

// TestContract sends traffic through the modes that need no agent at the backends; those
// that need one are in traffic_test.go, and IP in IP, of which this kernel may lack the other
// end, in the tests of programs.
func TestContract(t *testing.T) {
	t.Run("state", func(t *testing.T) { lbtest.State(t, subject) })
	t.Run("nat", func(t *testing.T) { lbtest.Traffic(t, subject) })
	t.Run("l2", func(t *testing.T) {
		s := subject
		s.Mode, s.Direct = model.ModeDSRL2, true
		s.Cannot = maps.Clone(subject.Cannot)
		s.Cannot[lbtest.OtherPort] = "DSRL2 does not change"
		lbtest.Traffic(t, s)
	})
}

// contractDump is what we and others have in the directory of pins and at interfaces.
func contractDump() (string, error) {
	var lines []string
	dir := os.Getenv(contractPins)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.HasPrefix(e.Name(), "foreign") {
			lines = append(lines, "pin "+path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	slices.Sort(lines)
	text := strings.Join(lines, "\n") + "\n"
	if contracted.k != nil && !contracted.closed {
		contracted.mu.Lock()
		defer contracted.mu.Unlock()
		text += meaning(contracted)
	}
	return text, nil
}

// meaning is dump without numbers that only link one map to another, and without what
// passes by itself.
func meaning(d *DataPlane) string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	m := &d.k.maps
	owner := map[uint32]string{}
	pairs(m.Frontends, func(k bpfFrontendKey, f bpfFrontend) {
		name := fmt.Sprintf("%s/%d/%d", k.Vip.address(), k.Protocol, bpf.NetworkPort(k.Port))
		owner[f.Index] = name
		f.Flags &^= uint16(bpfFrontendFlagFRONTEND_SETTLING)
		add("frontend %s hash %d affinity %d limit %d quic %#x flags %#x rows %d", name, f.Hash, f.Affinity, f.Limit, f.Quic, f.Flags, f.Mask+1)
		shares := map[string]int{}
		for i := f.Rows; i <= f.Rows+f.Mask; i++ {
			for n, slot := range d.k.row(i) {
				var b bpfBackend
				if slot != 0 && m.Backends.Lookup(slot, &b) == nil {
					shares[fmt.Sprintf("%s backend %d: %s %d mode %d remote %s%s", name, n, b.Address.address(), bpf.NetworkPort(b.Port), b.Mode, b.Remote.address(), backendFlags(b.Flags))]++
				}
			}
		}
		for what, n := range shares {
			add("%s: %d", what, n)
		}
	})
	pairs(m.Locals, func(k bpfLocalKey, v bpfLocal) {
		add("%s local %s %d%s", owner[k.Frontend], v.Address.address(), bpf.NetworkPort(v.Port), backendFlags(v.Flags))
	})
	pairs(m.Sources, func(k bpfSourceKey, _ uint32) {
		add("%s source %s/%d", owner[k.Frontend], k.Client.address(), k.Prefix-32)
	})
	pairs(m.QuicServers, func(k bpfQuicServerKey, _ uint32) { add("%s quic %x", owner[k.Frontend], k.Id) })
	pairs(m.Hops, func(id uint64, v bpfHop) { add("hop %x: %s", id, v.Remote.address()) })
	pairs(m.Machines, func(k bpfAddress, _ uint32) { add("machine %s", k.address()) })
	pairs(m.Vips, func(k bpfAddress, v uint32) {
		is := ""
		if v&vipGuarded != 0 {
			is = " guarded"
		}
		add("vip %s: %d%s", k.address(), v&^vipGuarded, is)
	})
	pairs(m.Others, func(k bpfFrontendKey, _ uint32) { add("other %s", keyOf(k)) })
	for h := range hooked {
		list := d.attached.At(h)
		for device, at := range list {
			if where, err := bpf.Where(h, at.Link); err == nil && where == device {
				add("%s at %s", h, at.Name)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n") + "\n"
}

// contractMeddle pins maps beside ours.
func contractMeddle() error {
	pins, err := bpf.MakePins(os.Getenv(contractPins), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for _, path := range []string{filepath.Join(pins, "foreign"), filepath.Join(filepath.Dir(pins), "foreign")} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		if err != nil {
			return err
		}
		if err := m.Pin(path); err != nil {
			return fmt.Errorf("pin %s: %w", path, err)
		}
	}
	return nil
}

// contractDamage detaches a program.
func contractDamage() error {
	contracted.mu.Lock()
	defer contracted.mu.Unlock()
	for _, at := range contracted.attached.At(bpf.XDP) {
		return at.Link.Detach()
	}
	return errors.New("nothing is attached")
}

var _ interface {
	Run(ctx context.Context) error
	Tunnel() (uint32, string, bool)
	MapBytes() uint64
} = (*DataPlane)(nil)

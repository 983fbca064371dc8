package bgp

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
)

// devices are two with one address, as two VRFs may have it, in a namespace of the test's own.
func devices(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // the thread goes with the namespace: it is not unlocked
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip(err)
	}
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "red"}, PeerName: "blue"}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"red", "blue"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := netlink.ParseAddr("192.0.2.1/24")
		if err := netlink.AddrAdd(link, a); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
}

func watchOn(device, remote string) bfdKey {
	key := bfdKey{
		local: netip.MustParseAddr("192.0.2.1"), remote: netip.MustParseAddr(remote), device: device,
		hold: time.Minute, conf: model.BFD{Interval: time.Second, Multiplier: 3},
	}
	key.index = key.boundTo()
	return key
}

// Each peer is watched, in whatever order they come, and also after their session began anew.
func TestBFDOfTwoDevicesWithOneAddress(t *testing.T) {
	devices(t)
	r := newReceivers("", slog.New(slog.DiscardHandler))
	watch := func(device, remote string) *bfdSession {
		b := r.session(watchOn(device, remote), r.log)
		t.Cleanup(func() { b.end(false) })
		if err := b.failed(); err != nil {
			t.Errorf("%s of %s is not watched: %v", remote, device, err)
		}
		return b
	}
	first := watch("red", "192.0.2.2")
	watch("blue", "192.0.2.2")
	watch("red", "192.0.2.4")
	first.end(false)
	watch("red", "192.0.2.2")
	watch("blue", "192.0.2.3")
}

// A socket of no device has the address on all of them: the session says that it is ours, and ends no program.
func TestBFDOfADeviceAndOfNone(t *testing.T) {
	devices(t)
	r := newReceivers("", slog.New(slog.DiscardHandler))
	in := r.session(watchOn("red", "192.0.2.2"), r.log)
	defer in.end(false)
	out := r.session(watchOn("", "192.0.2.3"), r.log)
	defer out.end(false)
	if err := in.failed(); err != nil {
		t.Error(err)
	}
	if err := out.failed(); err == nil || strings.Contains(err.Error(), "stop the program") || !strings.Contains(err.Error(), "VRF") {
		t.Errorf("it says %v", err)
	}
}

// The process before this one watched two peers with one address, in two VRFs: both are remembered, and a peer takes
// its own session over.
func TestBFDGoesOnInTwoVRFs(t *testing.T) {
	devices(t)
	file := filepath.Join(t.TempDir(), "bfd.json")
	before := newReceivers(file, slog.New(slog.DiscardHandler))
	for i, device := range []string{"red", "blue"} {
		b := newBFD(watchOn(device, "192.0.2.2"), before, before.log)
		b.yours, b.port, b.detected = 1, uint16(bfdFirstSource+i), time.Minute
		before.memory.put(b.record())
	}
	r := newReceivers(file, slog.New(slog.DiscardHandler))
	r.resume()
	defer r.endOrphans(false, func(*bfdSession) bool { return true })
	if len(r.orphans) != 2 {
		t.Fatalf("%d sessions go on, want 2", len(r.orphans))
	}
	for _, device := range []string{"red", "blue"} {
		b := r.adopt(watchOn(device, "192.0.2.2"))
		if b == nil {
			t.Fatalf("the session of %s ended", device)
		}
		defer b.end(false)
	}
}

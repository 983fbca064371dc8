package rtdump

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ProxyInterface is where kube-proxy in IPVS mode holds the addresses of Services, our VIPs and
// all cluster IPs among them, so that the kernel takes packets to them in: a dummy device that
// is down. Its addresses are the same on every node, and in no way the machine's own.
const ProxyInterface = "kube-ipvs0"

// Address is an address of one of the machine's interfaces.
type Address struct {
	Addr      netip.Addr // without a zone; an IPv4 address is no mapped one
	Interface string     // its name
	Up        bool       // the interface is
	Loopback  bool       // the interface is
	HostScope bool       // for the machine alone, as the VIPs that it holds
	Unstable  bool       // IPv6: temporary, deprecated, not yet checked for duplicates, or a duplicate
}

// Reachable says that other machines can reach this one by the address: its interface is up
// and no loopback, where VIPs are, and the address is neither link-local nor multicast.
func (a Address) Reachable() bool { return a.Up && !a.Loopback && a.Addr.IsGlobalUnicast() }

// Addresses is the list of the machine's addresses. It remembers the last one that was whole:
// what an interrupted list lacks would be withdrawn from other machines. Its methods may be
// called concurrently. The zero value remembers nothing yet.
type Addresses struct {
	read func() ([]Address, error) // nil: from the kernel

	mu    sync.Mutex
	begun uint64 // reads
	turn  uint64 // of the read that gave last
	last  []Address
}

const (
	// patience is how long NewAddresses tries to get a list that is whole.
	patience = 10 * time.Second
	// between is how long it waits after a try.
	between = 100 * time.Millisecond
)

// NewAddresses reads the list once: from then on there is always one to fall back on.
func NewAddresses() (*Addresses, error) {
	a := &Addresses{}
	return a, a.begin(time.Now().Add(patience))
}

func (a *Addresses) begin(deadline time.Time) error {
	for {
		_, err := a.List()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(between)
	}
}

// List is the list, by interface. An error says that it cannot be read now: then it is the
// last one known. The caller does not change it.
func (a *Addresses) List() ([]Address, error) {
	read := a.read
	if read == nil {
		read = addresses
	}
	a.mu.Lock()
	a.begun++
	turn := a.begun
	a.mu.Unlock()
	list, err := read() // which may wait: others need not
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		return a.last, fmt.Errorf("list the machine's addresses: %w", err)
	}
	if turn > a.turn {
		a.turn, a.last = turn, list
	}
	return list, nil
}

// Reachable are the addresses by which other machines can reach this one, by interface, each
// once. An error says the same as List's.
func (a *Addresses) Reachable() ([]netip.Addr, error) {
	list, err := a.List()
	var reachable []netip.Addr
	for _, x := range list {
		if x.Reachable() && !slices.Contains(reachable, x.Addr) {
			reachable = append(reachable, x.Addr)
		}
	}
	return reachable, err
}

// addresses asks the kernel. The addresses come first: one whose interface is not listed
// afterwards has gone with it.
func addresses() ([]Address, error) {
	held, err := Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	links, err := Whole(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return joined(held, links), nil
}

// unstable are the flags of IPv6 addresses that nothing should depend on. Among those of IPv4
// the same bit as IFA_F_TEMPORARY says that an address is not the first of its network.
const unstable = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED | unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

func joined(held []netlink.Addr, links []netlink.Link) []Address {
	on := make(map[int]*netlink.LinkAttrs, len(links))
	for _, l := range links {
		on[l.Attrs().Index] = l.Attrs()
	}
	slices.SortStableFunc(held, func(x, y netlink.Addr) int { return cmp.Compare(x.LinkIndex, y.LinkIndex) })
	list := make([]Address, 0, len(held))
	for _, h := range held {
		link := on[h.LinkIndex]
		if link == nil || h.IPNet == nil {
			continue
		}
		ip, ok := netip.AddrFromSlice(h.IP)
		if !ok {
			continue
		}
		ip = ip.Unmap()
		list = append(list, Address{
			Addr: ip, Interface: link.Name,
			Up: link.Flags&net.FlagUp != 0, Loopback: link.Flags&net.FlagLoopback != 0,
			HostScope: h.Scope == unix.RT_SCOPE_HOST, Unstable: ip.Is6() && h.Flags&unstable != 0,
		})
	}
	return list
}

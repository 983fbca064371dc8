package address

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ErrTaken is wrapped when the machine has the address already and it is not ours.
var ErrTaken = errors.New("address is taken")

// Holder holds addresses. Its methods may be called concurrently.
type Holder struct {
	log     *slog.Logger
	sysctls string

	mu       sync.Mutex
	set      map[netip.Addr]bool // wanted by Set
	single   map[netip.Addr]bool // wanted by Hold
	present  map[netip.Addr]bool // on lo, with our mark
	others   map[netip.Addr]bool // the machine's other addresses, when Set looked last
	proxied  map[netip.Addr]bool // those of kube-proxy, then
	refused  map[netip.Addr]error
	silenced bool
	used     bool // by Set or Hold
}

// New returns a holder that knows the addresses that an earlier holder left on lo. It
// changes nothing.
func New(log *slog.Logger) (*Holder, error) { return NewAt(Sysctls, log) }

// NewAt is New where the kernel's settings are to be changed in another directory: in a
// container Sysctls is read-only, and the host's may be mounted elsewhere.
func NewAt(sysctls string, log *slog.Logger) (*Holder, error) {
	h := &Holder{log: log, sysctls: sysctls, set: map[netip.Addr]bool{}, single: map[netip.Addr]bool{}, present: map[netip.Addr]bool{}}
	lo, err := loopback()
	if err != nil {
		return nil, fmt.Errorf("hold addresses: %w", err)
	}
	found, err := list()
	if err != nil {
		return nil, fmt.Errorf("hold addresses: %w", err)
	}
	for _, e := range found {
		if e.link == lo && e.mark == mark && e.bits == e.addr.BitLen() {
			h.present[e.addr] = true
		}
	}
	if len(h.present) > 0 {
		log.Info("found addresses that an earlier agent held", "count", len(h.present))
	}
	return h, nil
}

// Set holds exactly want, besides what Hold holds. It may be called again with the same;
// it adds removed addresses again. It removes each address of an earlier agent that is
// neither in want nor in keep: keep are addresses that the caller may Hold later, when it
// knows whether it should.
//
// An address that cannot be held does not affect the others; the error joins the errors
// of all.
func (h *Holder) Set(want []netip.Addr, keep ...netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refresh(); err != nil {
		return fmt.Errorf("hold addresses: %w", err)
	}
	h.used = true
	h.silenced = false // interfaces may have come, or settings changed
	clear(h.set)
	var errs []error
	for _, a := range want {
		h.set[a] = true
	}
	h.refused = map[netip.Addr]error{}
	for _, a := range want {
		if err := h.hold(a); err != nil {
			h.refused[a] = err
			errs = append(errs, err)
		}
	}
	for a := range h.present {
		if !h.set[a] && !h.single[a] && !slices.Contains(keep, a) {
			errs = append(errs, h.release(a))
		}
	}
	return errors.Join(errs...)
}

// Refused returns what the last Set that could look at the machine's addresses could
// not hold, with the reason.
func (h *Holder) Refused() map[netip.Addr]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.refused)
}

// Hold holds one address until Release, whatever Set says. It may be called again.
func (h *Holder) Hold(a netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.hold(a); err != nil {
		return err
	}
	h.used, h.single[a] = true, true
	return nil
}

// Release undoes Hold, or removes an address of an earlier agent. An address that Set
// holds stays, and one that is not ours is not touched.
func (h *Holder) Release(a netip.Addr) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.single, a)
	if h.set[a] || !h.present[a] {
		return nil
	}
	return h.release(a)
}

// Held returns the held addresses, sorted, with the addresses of an earlier agent that
// neither Set nor Release has named yet.
func (h *Holder) Held() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make([]netip.Addr, 0, len(h.present))
	for a := range h.present {
		held = append(held, a)
	}
	slices.SortFunc(held, netip.Addr.Compare)
	return held
}

// Close ends the holding. With leave the addresses stay for the next agent. They also
// stay if neither Set nor Hold was called: an agent that could not begin, because another
// one runs here, must not remove that agent's addresses.
func (h *Holder) Close(leave bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if leave || !h.used {
		return nil
	}
	clear(h.set)
	clear(h.single)
	var errs []error
	for a := range h.present {
		errs = append(errs, h.release(a))
	}
	return errors.Join(errs...)
}

// refresh forgets what is no longer on lo.
func (h *Holder) refresh() error {
	lo, err := loopback()
	if err != nil {
		return err
	}
	found, err := list()
	if err != nil {
		return err
	}
	proxy := proxyLink()
	there := map[netip.Addr]bool{}
	h.others, h.proxied = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, e := range found {
		switch {
		case e.link == lo && e.mark == mark:
			there[e.addr] = true
		case e.link == proxy:
			h.proxied[e.addr] = true
		default:
			h.others[e.addr] = true
		}
	}
	for a := range h.present {
		if !there[a] {
			h.log.Warn("another program removed an address of a VIP; it is added again", "vip", a)
			delete(h.present, a)
		}
	}
	return nil
}

func (h *Holder) hold(a netip.Addr) error {
	if err := h.usable(a); err != nil {
		return fmt.Errorf("hold %s: %w", a, err)
	}
	if h.present[a] {
		return nil
	}
	lo, err := loopback()
	if err != nil {
		return fmt.Errorf("hold %s: %w", a, err)
	}
	// The kernel would let two devices have one address. The route tells in constant time
	// whether to look for it; that of a new IPv6 address comes a moment after it.
	if h.others[a] || local(a) && !h.proxied[a] {
		if err := whose(a); err != nil {
			return fmt.Errorf("hold %s: %w", a, err)
		}
	}
	if err := add(lo, a); err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = cmp.Or(whose(a), err)
		}
		return fmt.Errorf("hold %s: add it to lo: %w", a, err)
	}
	h.present[a] = true
	h.log.Info("holding address", "vip", a)
	return nil
}

// usable returns why the machine cannot hold a, and makes the settings that a needs.
func (h *Holder) usable(a netip.Addr) error {
	switch {
	case !a.IsValid() || a.Is4In6() || a.Zone() != "" || a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return errors.New("a VIP is a unicast address that other machines can reach")
	case a.Is6():
		return ipv6Off()
	case h.silenced:
		return nil
	}
	if err := silence(h.sysctls); err != nil {
		return err
	}
	h.silenced = true
	return nil
}

func (h *Holder) release(a netip.Addr) error {
	lo, err := loopback()
	if err != nil {
		return fmt.Errorf("release %s: %w", a, err)
	}
	if err := remove(lo, a); err != nil {
		return fmt.Errorf("release %s: %w", a, err)
	}
	delete(h.present, a)
	h.log.Info("released address", "vip", a)
	return nil
}

// whose says in an error which device has a, nil where only kube-proxy's has it.
func whose(a netip.Addr) error {
	found, err := list()
	if err != nil {
		return err
	}
	proxy, proxied := proxyLink(), false
	for _, e := range found {
		if e.addr != a {
			continue
		}
		if e.link == proxy {
			proxied = true
			continue
		}
		name := fmt.Sprintf("device %d", e.link)
		if link, err := netlink.LinkByIndex(e.link); err == nil {
			name = link.Attrs().Name
		}
		return fmt.Errorf("%w: %s has it, and the agent did not add it; remove it there or choose another VIP", ErrTaken, name)
	}
	if proxied {
		return nil
	}
	return fmt.Errorf("%w: the machine's routing tables treat it as its own or as a broadcast address", ErrTaken)
}

package nft

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"fairlead.dev/internal/model"
)

// modulus of the hash that chooses a backend: as fine as shares can be.
const modulus = 1 << 16

// share is a backend and the first of its hash values; it has those up to the next one's.
type share struct {
	backend netip.AddrPort
	from    uint32
}

// spec is what a frontend's chains and sets are made from. Equal specs give equal objects.
type spec struct {
	key      model.FrontendKey
	local    bool // to the machine's own sockets, without NAT
	shares   []share
	guarded  bool // only sources may be clients
	sources  []span
	newFlows uint32
	affinity time.Duration
	hash     model.FlowHash

	// known may have flows: those of shares, and those that drain.
	known []netip.AddrPort
}

// compile says what a frontend becomes at a machine, and what about it is not as asked.
// available counts the backends that take new flows.
func compile(b model.Balancing, f *model.Balanced) (s spec, available uint32, message string) {
	s = spec{
		key: f.Frontend.FrontendKey, local: f.Frontend.Listener != "", newFlows: f.Frontend.NewFlows,
		affinity: f.Frontend.Affinity.Truncate(time.Millisecond), hash: f.Frontend.Hash, guarded: len(f.Frontend.Sources) > 0,
	}
	s.sources = spans(f.Frontend.Sources, s.key.VIP.Is4())
	if s.affinity < time.Second && f.Frontend.Affinity > 0 {
		s.affinity = time.Second // no client is so fast that it matters, and 0 is for ever
	}
	here := s.local || f.Frontend.LocalOnly || f.Frontend.Mode == model.ModeLocal
	var weights []uint32
	var takes []netip.AddrPort
	foreign := 0
	for _, x := range f.Backends {
		at := x.Address
		if s.local && !x.Proxy(s.key) || here && x.Machine != b.Machine {
			continue
		}
		if at.Addr().Is4() != s.key.VIP.Is4() {
			foreign++
			continue
		}
		if x.Machine == b.Machine && x.Machine != "" && b.Unready[s.key] || x.State == model.BackendUnready {
			continue
		}
		s.known = append(s.known, at)
		if x.State == model.BackendReady && x.Weight > 0 {
			takes, weights = append(takes, at), append(weights, x.Weight)
		}
	}
	s.shares = shares(takes, weights)
	if foreign > 0 {
		message = fmt.Sprintf("%d backends are left out: nftables rewrites addresses within one family only; give them addresses of the VIP's, or use the data plane XDP", foreign)
	}
	return s, uint32(len(takes)), message
}

// shares splits the hash values in proportion to the weights.
func shares(backends []netip.AddrPort, weights []uint32) []share {
	var total, sum uint64
	for _, w := range weights {
		total += uint64(w)
	}
	var all []share
	for i, w := range weights {
		from := portion(sum, total)
		sum += uint64(w)
		if portion(sum, total) > from {
			all = append(all, share{backend: backends[i], from: from})
		}
	}
	return all
}

// portion is part/total of the hash values.
func portion(part, total uint64) uint32 {
	hi, lo := bits.Mul64(part, modulus)
	q, _ := bits.Div64(hi, lo, total)
	return uint32(q)
}

// span is a range of addresses, both ends included.
type span struct{ first, last netip.Addr }

// spans are the addresses of the prefixes of a family, sorted, as few as possible.
func spans(prefixes []netip.Prefix, is4 bool) []span {
	var all []span
	for _, p := range prefixes {
		if p.Addr().Is4() == is4 {
			all = append(all, span{p.Masked().Addr(), last(p)})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.first.Compare(b.first) })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && (s.first.Compare(merged[n-1].last) <= 0 || merged[n-1].last.Next() == s.first) {
			if s.last.Compare(merged[n-1].last) > 0 {
				merged[n-1].last = s.last
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

func last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// id names a frontend in the names of its objects.
func id(k model.FrontendKey) string { return digest(k.String()) }

// content names what the frontend's objects are made of.
func (s spec) content() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.local, s.guarded, s.newFlows, s.affinity, s.hash)
	for _, x := range s.shares {
		fmt.Fprintln(&b, x.backend, x.from)
	}
	for _, x := range s.sources {
		fmt.Fprintln(&b, x.first, x.last)
	}
	return digest(b.String())
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}

// unsupported is an error about what nftables cannot do.
func unsupported(format string, args ...any) error {
	return fmt.Errorf("nftables: "+format+": %w", append(args, errors.ErrUnsupported)...)
}

// supports says what of the frontend nftables cannot do on any machine.
func supports(f *model.Frontend) error {
	listener := f.Listener != ""
	switch {
	case f.Mode == model.ModeDSRGeneve, f.Mode == model.ModeDSRIPIP, f.Mode == model.ModeDSRL2:
		return unsupported("mode %s: it rewrites addresses, and answers return through it; ask for the mode NAT, or the data plane XDP", f.Mode)
	case f.Mode == model.ModeNAT && listener:
		return unsupported("mode NAT to other machines' proxies: the proxies expect the VIP; ask for the mode Local, or the data plane XDP")
	case f.QUIC != nil:
		return unsupported("QUIC connection IDs: it hashes addresses and ports only; leave quic out, or use the data plane XDP")
	case f.Scheduler != "" && f.Scheduler != "mh":
		return unsupported("the scheduler %s: it chooses by hash; leave scheduler out, or use the data plane IPVS", f.Scheduler)
	case f.MaxFlows > 0:
		return unsupported("a limit of flows to one backend: leave maxFlowsPerBackend out, or use the data plane IPVS")
	}
	return nil
}

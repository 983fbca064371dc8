package translate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// family indexes what there is once for IPv4 and once for IPv6.
type family uint8

const (
	ipv4 family = iota
	ipv6
	families // how many there are
)

// String is "IPv4" or "IPv6".
func (f family) String() string {
	if f == ipv4 {
		return "IPv4"
	}
	return "IPv6"
}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return ipv4
	}
	return ipv6
}

// addrRange holds all addresses from one to another, both of one family.
type addrRange struct{ from, to netip.Addr }

func (r addrRange) contains(a netip.Addr) bool {
	return r.from.BitLen() == a.BitLen() && r.from.Compare(a) <= 0 && a.Compare(r.to) <= 0
}

func (r addrRange) overlap(s addrRange) (addrRange, bool) {
	o := addrRange{from: r.from, to: r.to}
	if o.from.Less(s.from) {
		o.from = s.from
	}
	if s.to.Less(o.to) {
		o.to = s.to
	}
	return o, r.from.BitLen() == s.from.BitLen() && o.from.Compare(o.to) <= 0
}

// String is "from-to", or the address when there is one.
func (r addrRange) String() string {
	if r.from == r.to {
		return r.from.String()
	}
	return r.from.String() + "-" + r.to.String()
}

// size is how many addresses there are, the largest uint64 when there are more.
func (r addrRange) size() uint64 {
	fromHigh, fromLow := halves(r.from)
	toHigh, toLow := halves(r.to)
	low, borrow := bits.Sub64(toLow, fromLow, 0)
	high, _ := bits.Sub64(toHigh, fromHigh, borrow)
	if high > 0 || low == math.MaxUint64 {
		return math.MaxUint64
	}
	return low + 1
}

func halves(a netip.Addr) (high, low uint64) {
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// isBuggy reports whether some equipment takes an address for a broadcast: an IPv4
// address that ends in .0 or .255.
func isBuggy(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

// buggy is how many addresses of the range isBuggy is true of.
func (r addrRange) buggy() uint64 {
	if !r.from.Is4() {
		return 0
	}
	below := func(n uint64) uint64 { return (n+255)/256 + n/256 } // of the addresses 0 to n-1
	_, from := halves(r.from)
	_, to := halves(r.to)
	return below(to&math.MaxUint32+1) - below(from&math.MaxUint32)
}

// parseRange reads "192.0.2.0/28", "192.0.2.16-192.0.2.19" or "192.0.2.30".
func parseRange(text string) (addrRange, error) {
	if first, last, isRange := strings.Cut(text, "-"); isRange {
		from, err := parsePlain(strings.TrimSpace(first))
		if err != nil {
			return addrRange{}, err
		}
		to, err := parsePlain(strings.TrimSpace(last))
		if err != nil {
			return addrRange{}, err
		}
		if from.BitLen() != to.BitLen() || to.Less(from) {
			return addrRange{}, fmt.Errorf("%s is not after %s", to, from)
		}
		return usable(addrRange{from, to})
	}
	if _, err := netip.ParseAddr(text); err == nil {
		a, err := parsePlain(text)
		if err != nil {
			return addrRange{}, err
		}
		return usable(addrRange{a, a})
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return addrRange{}, errors.New(`neither a CIDR like "192.0.2.0/28", nor a range like "192.0.2.16-192.0.2.19", nor an address like "192.0.2.30"`)
	}
	if p != p.Masked() {
		return addrRange{}, fmt.Errorf("has bits set behind the prefix length: is %s meant?", p.Masked())
	}
	return usable(rangeOf(p))
}

// rangeOf holds the addresses of a CIDR that has no bits set behind the prefix length.
func rangeOf(p netip.Prefix) addrRange {
	to := p.Addr().AsSlice()
	for i := range to {
		switch host := 8*(i+1) - p.Bits(); {
		case host >= 8:
			to[i] = 0xFF
		case host > 0:
			to[i] |= 1<<host - 1
		}
	}
	last, _ := netip.AddrFromSlice(to)
	return addrRange{p.Addr(), last}
}

// parsePlain reads an address without a zone, and no IPv4 address in IPv6's clothes.
func parsePlain(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s is no IP address", quote(text))
	}
	if a.Is4In6() {
		return netip.Addr{}, fmt.Errorf("%s is an IPv4 address: write %s", text, a.Unmap())
	}
	return a, nil
}

// ParsePrefixes reads CIDRs and addresses that commas separate: "10.0.0.0/8, 2001:db8::1". Of several mistakes
// the error names the first.
func ParsePrefixes(text string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := parseCIDR(part)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return sortPrefixes(list), nil
}

// parseCIDR reads a CIDR or an address. One that says more than its prefix length is an error: whoever wrote
// 10.0.0.1/8 may have meant one address.
func parseCIDR(text string) (netip.Prefix, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		a, err := parsePlain(text)
		return netip.PrefixFrom(a, a.BitLen()), err
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, errors.New(quote(text) + ` is neither a CIDR like "10.0.0.0/8" nor an address`)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits set behind the prefix length: is %s meant?", text, p.Masked())
	}
	return p, nil
}

// rangesOf are the addresses of CIDRs, as inRanges wants them.
func rangesOf(prefixes []netip.Prefix) (ranges [families][]addrRange) {
	for _, p := range prefixes {
		fam := familyOf(p.Addr())
		ranges[fam] = append(ranges[fam], rangeOf(p.Masked()))
	}
	for fam := range families {
		ranges[fam] = mergeRanges(ranges[fam])
	}
	return ranges
}

// unusable are the addresses that clients cannot reach (RFC 6890): no VIP is there.
func unusable() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
		netip.MustParsePrefix("224.0.0.0/3"), netip.MustParsePrefix("::/127"), netip.MustParsePrefix("::ffff:0:0/96"),
		netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
	}
}

func usable(r addrRange) (addrRange, error) {
	for _, p := range unusable() {
		if r.from.BitLen() == p.Addr().BitLen() && (r.contains(p.Addr()) || p.Contains(r.from)) {
			return r, fmt.Errorf("has addresses of %s, at which no client reaches a machine", p)
		}
	}
	return r, nil
}

// mergeRanges sorts ranges and joins those that touch.
func mergeRanges(ranges []addrRange) []addrRange {
	slices.SortFunc(ranges, func(a, b addrRange) int { return a.from.Compare(b.from) })
	var merged []addrRange
	for _, r := range ranges {
		if n := len(merged); n > 0 {
			if last := &merged[n-1]; r.from.Compare(last.to) <= 0 || last.to.Next() == r.from {
				if last.to.Less(r.to) {
					last.to = r.to
				}
				continue
			}
		}
		merged = append(merged, r)
	}
	return merged
}

// inRanges reports whether ranges that mergeRanges made have an address.
func inRanges(ranges [families][]addrRange, a netip.Addr) bool {
	list := ranges[familyOf(a)]
	i, exact := slices.BinarySearchFunc(list, a, func(r addrRange, a netip.Addr) int { return r.from.Compare(a) })
	return exact || i > 0 && list[i-1].contains(a)
}

// free is a number for people; a large one is not counted to the last address, so
// that it does not change with every assignment.
func freeText(n uint64) string {
	const most = 1_000_000
	if n > most {
		return "over " + strconv.Itoa(most)
	}
	return strconv.FormatUint(n, 10)
}

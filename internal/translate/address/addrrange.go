package address

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

	"fairlead.dev/internal/translate/field"
)

// Family indexes what there is once for IPv4 and once for IPv6.
type Family uint8

// The address families, and their number.
const (
	IPv4 Family = iota
	IPv6
	Families
)

// String is "IPv4" or "IPv6".
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// Range holds all addresses from one to another, both of one family.
type Range struct{ From, To netip.Addr }

// Contains reports whether the range holds an address.
func (r Range) Contains(a netip.Addr) bool {
	return r.From.BitLen() == a.BitLen() && r.From.Compare(a) <= 0 && a.Compare(r.To) <= 0
}

// Overlap returns the addresses that two ranges have in common, and whether there are any.
func (r Range) Overlap(s Range) (Range, bool) {
	o := Range{From: r.From, To: r.To}
	if o.From.Less(s.From) {
		o.From = s.From
	}
	if s.To.Less(o.To) {
		o.To = s.To
	}
	return o, r.From.BitLen() == s.From.BitLen() && o.From.Compare(o.To) <= 0
}

// String is "from-to", or the address when there is one.
func (r Range) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// Size is how many addresses there are, the largest uint64 when there are more.
func (r Range) Size() uint64 {
	fromHigh, fromLow := halves(r.From)
	toHigh, toLow := halves(r.To)
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

// IsBuggy reports whether some equipment takes an address for a broadcast: an IPv4
// address that ends in .0 or .255.
func IsBuggy(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	last := a.As4()[3]
	return last == 0 || last == 255
}

// Buggy is how many addresses of the range IsBuggy is true of.
func (r Range) Buggy() uint64 {
	if !r.From.Is4() {
		return 0
	}
	below := func(n uint64) uint64 { return (n+255)/256 + n/256 } // of the addresses 0 to n-1
	_, from := halves(r.From)
	_, to := halves(r.To)
	return below(to&math.MaxUint32+1) - below(from&math.MaxUint32)
}

// ParseRange reads "192.0.2.0/28", "192.0.2.16-192.0.2.19" or "192.0.2.30".
func ParseRange(text string) (Range, error) {
	if first, last, isRange := strings.Cut(text, "-"); isRange {
		from, err := ParsePlain(strings.TrimSpace(first))
		if err != nil {
			return Range{}, err
		}
		to, err := ParsePlain(strings.TrimSpace(last))
		if err != nil {
			return Range{}, err
		}
		if from.BitLen() != to.BitLen() || to.Less(from) {
			return Range{}, fmt.Errorf("%s is not after %s", to, from)
		}
		return usable(Range{from, to})
	}
	if _, err := netip.ParseAddr(text); err == nil {
		a, err := ParsePlain(text)
		if err != nil {
			return Range{}, err
		}
		return usable(Range{a, a})
	}
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return Range{}, errors.New(`neither a CIDR like "192.0.2.0/28", nor a range like "192.0.2.16-192.0.2.19", nor an address like "192.0.2.30"`)
	}
	if p != p.Masked() {
		return Range{}, fmt.Errorf("has bits set behind the prefix length: is %s meant?", p.Masked())
	}
	return usable(rangeOf(p))
}

// rangeOf holds the addresses of a CIDR that has no bits set behind the prefix length.
func rangeOf(p netip.Prefix) Range {
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
	return Range{p.Addr(), last}
}

// ParsePlain reads an address without a zone, and no IPv4 address in IPv6's clothes.
func ParsePlain(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%s is not an IP address", field.Quote(text))
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
	return SortPrefixes(list), nil
}

// parseCIDR reads a CIDR or an address. One that says more than its prefix length is an error: whoever wrote
// 10.0.0.1/8 may have meant one address.
func parseCIDR(text string) (netip.Prefix, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		a, err := ParsePlain(text)
		return netip.PrefixFrom(a, a.BitLen()), err
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, errors.New(field.Quote(text) + ` is neither a CIDR like "10.0.0.0/8" nor an address`)
	case p != p.Masked():
		return p, fmt.Errorf("%s has bits set behind the prefix length: is %s meant?", text, p.Masked())
	}
	return p, nil
}

// RangesOf are the addresses of CIDRs, as InRanges wants them.
func RangesOf(prefixes []netip.Prefix) (ranges [Families][]Range) {
	for _, p := range prefixes {
		fam := FamilyOf(p.Addr())
		ranges[fam] = append(ranges[fam], rangeOf(p.Masked()))
	}
	for fam := range Families {
		ranges[fam] = MergeRanges(ranges[fam])
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

func usable(r Range) (Range, error) {
	for _, p := range unusable() {
		if r.From.BitLen() == p.Addr().BitLen() && (r.Contains(p.Addr()) || p.Contains(r.From)) {
			return r, fmt.Errorf("has addresses of %s, which no client can reach", p)
		}
	}
	return r, nil
}

// MergeRanges sorts ranges and joins those that touch.
func MergeRanges(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return a.From.Compare(b.From) })
	var merged []Range
	for _, r := range ranges {
		if n := len(merged); n > 0 {
			if last := &merged[n-1]; r.From.Compare(last.To) <= 0 || last.To.Next() == r.From {
				if last.To.Less(r.To) {
					last.To = r.To
				}
				continue
			}
		}
		merged = append(merged, r)
	}
	return merged
}

// InRanges reports whether ranges that MergeRanges made have an address.
func InRanges(ranges [Families][]Range, a netip.Addr) bool {
	list := ranges[FamilyOf(a)]
	i, exact := slices.BinarySearchFunc(list, a, func(r Range, a netip.Addr) int { return r.From.Compare(a) })
	return exact || i > 0 && list[i-1].Contains(a)
}

// FreeText writes a number of free addresses for people. A large number is not exact, so that
// it does not change with every assignment.
func FreeText(n uint64) string {
	const most = 1_000_000
	if n > most {
		return "over " + strconv.Itoa(most)
	}
	return strconv.FormatUint(n, 10)
}

package translate

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
)

// allowance is where the endpoints of a Namespace may be though they would be refused. The zero value allows
// nothing.
type allowance struct {
	ranges  [families][]addrRange
	problem string // why the annotation cannot be read
}

// makeAllowance reads the annotation of a Namespace; nil when it has none.
func makeAllowance(o *corev1.Namespace) *allowance {
	if o == nil || o.Annotations[v1alpha1.AnnotationAllowEndpoints] == "" {
		return nil
	}
	prefixes, err := ParsePrefixes(o.Annotations[v1alpha1.AnnotationAllowEndpoints])
	if err != nil {
		return &allowance{problem: err.Error()}
	}
	return &allowance{ranges: rangesOf(prefixes)}
}

func (r reader) allowance(namespace string) allowance {
	r.t.graph.read(r.by, node{kind: nodeAllowance, a: namespace})
	if a := r.t.allowances[namespace]; a != nil {
		return *a
	}
	return allowance{}
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

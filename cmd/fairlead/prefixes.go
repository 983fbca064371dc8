package main

import (
	"net/netip"
	"strings"

	"fairlead.dev/internal/translate"
)

// refuseEndpointsHelp describes the flag of all who translate.
const refuseEndpointsHelp = "CIDRs in which endpoints are refused unless their Namespace allows them, say those of machines and planes"

// ingressClassHelp describes another.
const ingressClassHelp = "class of the IngressRoutes to serve, beside those without one (annotation kubernetes.io/ingress.class or contour.heptio.com/ingress.class)"

// disablePermitInsecureHelp describes a third.
const disablePermitInsecureHelp = "send requests in clear text to https for every route of an IngressRoute whose host has TLS, also for those with permitInsecure"

// prefixes is the value of a flag that takes CIDRs, separated by commas, and may be given often.
type prefixes []netip.Prefix

// String is empty while the flag has not been given: help shows no default then.
func (p *prefixes) String() string {
	texts := make([]string, len(*p))
	for i, prefix := range *p {
		texts[i] = prefix.String()
	}
	return strings.Join(texts, ",")
}

// Set adds what one use of the flag names.
func (p *prefixes) Set(text string) error {
	list, err := translate.ParsePrefixes(text)
	if err != nil {
		return err
	}
	*p = append(*p, list...)
	return nil
}

// cidrs stands in help for the value of such a flag.
const cidrs = "CIDRs"

// Type says what kind of value it is.
func (p *prefixes) Type() string { return cidrs }

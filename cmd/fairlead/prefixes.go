package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"fairlead.dev/internal/translate"
)

// refuseEndpointsHelp describes the flag of all who translate.
const refuseEndpointsHelp = "CIDRs in which endpoints are refused unless their Namespace allows them, such as the networks of machines and planes"

// ingressClassVar adds another.
func ingressClassVar(flags *pflag.FlagSet, to *string, with string) {
	*to = translate.IngressClass
	flags.Var((*className)(to), "ingress-class", with+ingressClassHelp)
}

const ingressClassHelp = "class of the IngressRoutes to serve, in addition to those without a class (annotation kubernetes.io/ingress.class or contour.heptio.com/ingress.class)"

// These describe options of how hosts are served.
const (
	affinityCookieHelp = "name of the session affinity cookie of IngressRoutes with the strategy Cookie (default: fairlead-affinity)"
	minTLSHelp         = "lower bound of the minimum TLS version of every host name: 1.2 or 1.3 (default: the minimum that the host sets, else 1.2)"
)

// checkHosts says what is wrong with them.
func checkHosts(affinityCookie, minTLS string) error {
	if minTLS != "" && minTLS != "1.2" && minTLS != "1.3" {
		return usageError{err: fmt.Errorf("--minimum-tls-version %q: want 1.2 or 1.3", minTLS)}
	}
	if affinityCookie != "" && (&http.Cookie{Name: affinityCookie}).Valid() != nil {
		return usageError{err: fmt.Errorf("--affinity-cookie %q is not a valid cookie name: want a token (RFC 9110), such as letters, digits and dashes", affinityCookie)}
	}
	return nil
}

// disablePermitInsecureHelp describes a third.
const disablePermitInsecureHelp = "redirect plaintext requests to https for every IngressRoute whose host has TLS, ignoring permitInsecure"

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

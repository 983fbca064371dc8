package input

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// classAnnotations say whose an IngressRoute is; the first that is there counts, as in Contour.
var classAnnotations = [...]string{"contour.heptio.com/ingress.class", "projectcontour.io/ingress.class", "kubernetes.io/ingress.class"}

// ClassOf is the class that an IngressRoute's annotations name; empty when none does, or the first one is empty.
func ClassOf(annotations map[string]string) string {
	for _, name := range classAnnotations {
		if class, there := annotations[name]; there {
			return class
		}
	}
	return ""
}

// IsOurs says that an IngressRoute is ours: without a class, or with ours. Another controller's does
// not exist for us: it has no host, no status, and nobody delegates to it.
func (c Config) IsOurs(o *contourv1beta1.IngressRoute) bool {
	class := ClassOf(o.Annotations)
	return class == "" || class == c.IngressClass
}

// ClearID is the listener of IngressRoutes without TLS.
func (c Config) ClearID() model.ListenerID {
	return model.SharedListener(model.ProtocolHTTP, c.IngressRoutePort)
}

// TLSID is the listener of IngressRoutes with TLS.
func (c Config) TLSID() model.ListenerID {
	return model.SharedListener(model.ProtocolHTTPS, c.IngressRouteTLSPort)
}

// PortOfIngressRoutes says why a listener at the machines' own addresses cannot have a port, or
// nothing: a port speaks one protocol, and IngressRoutes are served at two of them.
func (c Config) PortOfIngressRoutes(port int32, secure bool) string {
	at := "port " + strconv.Itoa(int(port)) + " of the machines' own addresses"
	const instead = ": choose another port, move that of IngressRoutes, or give the Gateway an address of its own (AddressPool)"
	switch {
	case port == int32(c.IngressRouteTLSPort) && !secure:
		return at + " is where IngressRoutes are served with TLS" + instead
	case port == int32(c.IngressRoutePort) && secure:
		return at + " is where IngressRoutes are served in clear text" + instead
	}
	return ""
}

// RedirectToTLS answers requests in clear text.
func (c Config) RedirectToTLS() *model.Redirect {
	r := &model.Redirect{Scheme: "https", Status: 301}
	if c.IngressRouteTLSPort != 443 {
		r.Port = c.IngressRouteTLSPort
	}
	return r
}

// FloorNote says that a version of TLS that somebody asks for is not the one that holds, because the operator
// allows none so old; empty where it does.
func (c Config) FloorNote(version model.TLSVersion) string {
	if version == "" || version >= c.MinTLS { // "1.0" to "1.3" are in order
		return ""
	}
	return field.Quote(string(version)) + " counts as " + string(c.MinTLS) + ", the minimum of the plane (--minimum-tls-version)"
}

// ControllerName is the controllerName of the GatewayClasses that are ours,
// unless the configuration says another.
const ControllerName gatewayv1.GatewayController = "fairlead.dev/gateway"

// IngressClass is the class of the IngressRoutes that are ours, unless the configuration says another: that
// which Contour has where no flag says one.
const IngressClass = "contour"

// Config is what an operator decides about translation. The zero value is usable.
type Config struct {
	// ControllerName that a GatewayClass must name to be ours; ControllerName when empty.
	ControllerName gatewayv1.GatewayController
	// RootNamespaces are where root IngressRoutes may stand; any when empty.
	RootNamespaces []string
	// IngressClass is the class of the IngressRoutes that are ours, beside those without one;
	// IngressClass when empty.
	IngressClass string
	// AffinityCookie keeps clients at a backend for services with the strategy Cookie; the proxy's when empty.
	AffinityCookie string
	// DisablePermitInsecure serves no route of an IngressRoute in clear text whose host has TLS.
	DisablePermitInsecure bool
	// MinTLS is the least version of TLS of every host name, which proxies see to; empty is none. Here it
	// changes what statuses say alone.
	MinTLS model.TLSVersion
	// IngressRoutePort is where IngressRoutes are served in clear text; 80 when 0.
	IngressRoutePort uint16
	// IngressRouteTLSPort is where IngressRoutes with TLS are served; 443 when 0.
	IngressRouteTLSPort uint16
	// GatewayAPIVersion is the release of the Gateway API whose CRDs the API serves, as they
	// say themselves; empty when it is not known.
	GatewayAPIVersion string
	// ReservedPorts are taken on every machine and refused to listeners.
	ReservedPorts []uint16
	// SecretNamespace is where the Secrets are that BGPPeers name;
	// v1alpha1.SystemNamespace when empty.
	SecretNamespace string
	// RefusedEndpoints are where endpoints are refused, unless their Namespace allows them
	// (v1alpha1.AnnotationAllowEndpoints).
	RefusedEndpoints []netip.Prefix
	// MeasuredGroups and MeasuredRoutes are how many groups and routes have metrics of their own; 0: model.MaxMeasuredGroups
	// and model.MaxMeasuredRoutes. Namespaces share them.
	MeasuredGroups, MeasuredRoutes int
}

// WithDefaults returns the configuration with the defaults in the place of zero values.
func (c Config) WithDefaults() Config {
	if c.ControllerName == "" {
		c.ControllerName = ControllerName
	}
	if c.IngressRoutePort == 0 {
		c.IngressRoutePort = 80
	}
	if c.IngressRouteTLSPort == 0 {
		c.IngressRouteTLSPort = 443
	}
	c.IngressClass = cmp.Or(c.IngressClass, IngressClass)
	c.SecretNamespace = cmp.Or(c.SecretNamespace, v1alpha1.SystemNamespace)
	c.MeasuredGroups = cmp.Or(c.MeasuredGroups, model.MaxMeasuredGroups)
	c.MeasuredRoutes = cmp.Or(c.MeasuredRoutes, model.MaxMeasuredRoutes)
	return c
}

// MayBeRoot reports whether IngressRoutes of a namespace may be roots.
func (c Config) MayBeRoot(namespace string) bool {
	return len(c.RootNamespaces) == 0 || slices.Contains(c.RootNamespaces, namespace)
}

package gateway

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/input"
)

// ListenerResult is the outcome of reading a listener, for one of its conditions.
type ListenerResult = condition.Result[gatewayv1.ListenerConditionReason]

// Listener is one listener of a Gateway or a ListenerSet.
type Listener struct {
	Name     gatewayv1.SectionName
	Port     int32
	protocol gatewayv1.ProtocolType
	Hostname string // field.AnyHost when unset

	Accepted   ListenerResult
	Conflicted ListenerResult
	Resolved   ListenerResult
	// Overlaps names a listener at the same port whose hostname covers this one's, or is
	// covered by it (HTTPS).
	Overlaps string
	// inner says that a listener with a wider hostname stands at the same port, of TLS: one
	// that takes requests.
	inner bool

	Kinds    []gatewayv1.RouteGroupKind // of its routes, those that are supported
	from     gatewayv1.FromNamespaces
	selector *metav1.LabelSelector

	Passthrough  bool                  // TLS is handed on as it is
	Certificates []model.CertificateID // of HTTPS and TLS, those that can be shown
	MinTLS       model.TLSVersion
}

// Secure reports whether clients speak TLS with it.
func (l *Listener) Secure() bool {
	return l.protocol == gatewayv1.HTTPSProtocolType || l.protocol == gatewayv1.TLSProtocolType
}

// Direct reports whether it leads to backends without a proxy.
func (l *Listener) Direct() bool {
	return l.protocol == gatewayv1.TCPProtocolType || l.protocol == gatewayv1.UDPProtocolType
}

// Transport is what clients send.
func (l *Listener) Transport() model.Transport {
	if l.protocol == gatewayv1.UDPProtocolType {
		return model.UDP
	}
	return model.TCP
}

// Serves reports whether requests can come in through it.
func (l *Listener) Serves() bool { return !l.Accepted.Failed }

// Broken reports whether it is accepted and has no certificate to show: clients' connections
// are closed then, and routes attach all the same.
func (l *Listener) Broken() bool {
	return l.Serves() && l.Secure() && !l.Passthrough && len(l.Certificates) == 0
}

// modelProtocol is what the listener of the model speaks that serves it.
func (l *Listener) modelProtocol() model.Protocol {
	if l.Secure() {
		return model.ProtocolHTTPS
	}
	return model.ProtocolHTTP
}

// allows reports whether routes of a kind and namespace may attach; home is the namespace
// of the listener.
func (t *Tables) allows(c *memo.Context, l *Listener, kind snapshot.Kind, home, namespace string) bool {
	if !slices.ContainsFunc(l.Kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == string(kind) }) {
		return false
	}
	return t.selects(c, l.from, l.selector, home, namespace)
}

// selects reports whether an allowance of namespaces includes one.
func (t *Tables) selects(c *memo.Context, from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, home, namespace string) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == home
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(t.in.Labels.Get(c, namespace)))
	default:
		return false
	}
}

// bearer is who has listeners: a Gateway or a ListenerSet.
type bearer struct {
	t    *Tables
	ctx  *memo.Context
	kind snapshot.Kind
	name snapshot.Name
}

// makeListener judges one listener for itself, before its neighbours are known.
func (b bearer) makeListener(o *gatewayv1.Listener, path string) Listener {
	l := Listener{Name: o.Name, Port: int32(o.Port), protocol: o.Protocol, Hostname: field.AnyHost, from: gatewayv1.NamespacesFromSame}
	l.Passthrough = o.Protocol == gatewayv1.TLSProtocolType && o.TLS != nil && field.Deref(o.TLS.Mode) == gatewayv1.TLSModePassthrough
	takes := l.takes()
	if len(takes) == 0 {
		l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedProtocol,
			path+".protocol: "+field.Quote(string(o.Protocol))+" is not supported: only HTTP, HTTPS, TLS, TCP and UDP are")
	}
	if l.Port < 1 || l.Port > 65535 {
		l.Accepted.Fail(gatewayv1.ListenerReasonPortUnavailable, path+".port: "+strconv.Itoa(int(l.Port))+" must be in the range 1-65535")
	} else if slices.Contains(b.t.in.Config.ReservedPorts, uint16(l.Port)) {
		l.Accepted.Fail(gatewayv1.ListenerReasonPortUnavailable, path+".port: "+strconv.Itoa(int(l.Port))+" is used by Fairlead itself on every machine")
	}
	if host := strings.ToLower(string(field.Deref(o.Hostname))); host != "" && !l.Direct() {
		if problem := field.HostProblem(host, true); problem != "" {
			l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".hostname: "+problem)
		} else {
			l.Hostname = host
		}
	}
	allowed := field.Deref(o.AllowedRoutes)
	if n := allowed.Namespaces; n != nil {
		l.from = cmp.Or(field.Deref(n.From), gatewayv1.NamespacesFromSame)
		switch l.from {
		case gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromNone:
		case gatewayv1.NamespacesFromSelector:
			l.selector = n.Selector
			if _, err := metav1.LabelSelectorAsSelector(n.Selector); err != nil {
				l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.selector: "+err.Error())
			} else if n.Selector == nil {
				l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.selector: must be set when from is Selector")
			}
		default:
			l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.from: "+field.Quote(string(l.from))+" is unknown")
		}
	}
	l.Kinds = []gatewayv1.RouteGroupKind{}
	if len(allowed.Kinds) == 0 {
		for _, kind := range takes {
			l.Kinds = append(l.Kinds, routeKind(kind))
		}
	}
	for i, k := range allowed.Kinds {
		group := gatewayv1.Group(gatewayv1.GroupName)
		if k.Group != nil {
			group = *k.Group
		}
		kind := snapshot.Kind(k.Kind)
		if group != gatewayv1.GroupName || !slices.Contains(takes, kind) {
			l.Resolved.Fail(gatewayv1.ListenerReasonInvalidRouteKinds,
				path+"."+field.At("allowedRoutes.kinds", i)+": "+string(k.Kind)+" routes cannot attach to a listener of protocol "+string(o.Protocol))
			continue
		}
		if !slices.ContainsFunc(l.Kinds, func(known gatewayv1.RouteGroupKind) bool { return string(known.Kind) == string(kind) }) {
			l.Kinds = append(l.Kinds, routeKind(kind))
		}
	}
	b.makeTLS(&l, o.TLS, path+".tls")
	return l
}

// takes are the kinds of routes that may attach to listeners of the protocol.
func (l *Listener) takes() []snapshot.Kind {
	switch l.protocol {
	case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType:
		return []snapshot.Kind{snapshot.KindHTTPRoute, snapshot.KindGRPCRoute}
	case gatewayv1.TLSProtocolType:
		if l.Passthrough {
			return []snapshot.Kind{snapshot.KindTLSRoute}
		}
		return []snapshot.Kind{snapshot.KindTLSRoute, snapshot.KindTCPRoute}
	case gatewayv1.TCPProtocolType:
		return []snapshot.Kind{snapshot.KindTCPRoute}
	case gatewayv1.UDPProtocolType:
		return []snapshot.Kind{snapshot.KindUDPRoute}
	default:
		return nil
	}
}

func routeKind(kind snapshot.Kind) gatewayv1.RouteGroupKind {
	group := gatewayv1.Group(gatewayv1.GroupName)
	return gatewayv1.RouteGroupKind{Group: &group, Kind: gatewayv1.Kind(kind)}
}

// makeTLS reads how TLS is ended.
func (b bearer) makeTLS(l *Listener, o *gatewayv1.ListenerTLSConfig, path string) {
	if !l.Secure() {
		if o != nil && len(l.takes()) > 0 {
			l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+": must not be set for protocol "+string(l.protocol))
		}
		return
	}
	if l.Passthrough {
		return // whatever else is said is the backends' business
	}
	if o == nil || len(o.CertificateRefs) == 0 {
		l.Resolved.Fail(gatewayv1.ListenerReasonInvalidCertificateRef, path+".certificateRefs: at least one is needed")
		return
	}
	if mode := field.Deref(o.Mode); mode != "" && mode != gatewayv1.TLSModeTerminate {
		l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".mode: "+field.Quote(string(mode))+" cannot be: "+
			field.When(l.protocol == gatewayv1.HTTPSProtocolType, "HTTPS listeners end TLS (Terminate)")+
			field.When(l.protocol != gatewayv1.HTTPSProtocolType, "only Terminate and Passthrough are known"))
	}
	for _, key := range field.SortedKeys(o.Options) {
		if !strings.HasPrefix(string(key), ownOptions) {
			continue // somebody else's
		}
		if string(key) != OptionMinTLS {
			l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".options: "+field.Quote(string(key))+" is unknown: only "+OptionMinTLS+" is known")
			continue
		}
		switch version := model.TLSVersion(o.Options[key]); version {
		case "1.0", "1.1", "1.2", "1.3":
			l.MinTLS = version
		default:
			l.Accepted.Fail(gatewayv1.ListenerReasonUnsupportedValue, path+".options["+OptionMinTLS+"]: "+field.Quote(string(version))+" must be 1.0, 1.1, 1.2 or 1.3")
		}
	}
	shown := map[string]bool{} // key types, for a hostname that is a name
	for i := range o.CertificateRefs {
		id, keyType := b.certificate(&o.CertificateRefs[i], field.At(path+".certificateRefs", i), &l.Resolved)
		exact := l.Hostname != field.AnyHost && !strings.HasPrefix(l.Hostname, "*")
		if id == "" || slices.Contains(l.Certificates, id) || exact && shown[keyType] {
			continue
		}
		shown[keyType] = true
		l.Certificates = append(l.Certificates, id)
	}
}

// Options of tls.options that are ours.
const (
	ownOptions = "fairlead.dev/"
	// OptionMinTLS is the least version of TLS that clients may speak.
	OptionMinTLS = "fairlead.dev/min-tls-version"
)

// certificate resolves a reference to a TLS Secret; the ID is empty when it is broken.
func (b bearer) certificate(ref *gatewayv1.SecretObjectReference, path string, resolved *ListenerResult) (model.CertificateID, string) {
	f, refused, problem := b.t.resolveCertificate(b.ctx, b.kind, b.name.Namespace, ref)
	switch {
	case problem == "":
		return f.Certificate.ID, f.KeyType
	case refused:
		resolved.Fail(gatewayv1.ListenerReasonRefNotPermitted, path+": "+problem)
	default:
		resolved.Fail(gatewayv1.ListenerReasonInvalidCertificateRef, path+": "+problem)
	}
	return "", ""
}

// resolveCertificate finds the TLS Secret of a reference. With a problem there is no certificate;
// refused says that the problem is a missing ReferenceGrant.
func (t *Tables) resolveCertificate(c *memo.Context, kind snapshot.Kind, namespace string, ref *gatewayv1.SecretObjectReference) (f *certificate.Certificate, refused bool, problem string) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindSecret) {
		refKind := cmp.Or(string(field.Deref(ref.Kind)), string(snapshot.KindSecret))
		return nil, false, field.KindText(string(field.Deref(ref.Group)), refKind) + " holds no certificate: only Secret does"
	}
	secret := snapshot.Name{Namespace: cmp.Or(string(field.Deref(ref.Namespace)), namespace), Name: string(ref.Name)}
	if secret.Namespace != namespace && !t.in.Granted(c, gatewayv1.GroupName, kind, namespace, snapshot.KindSecret, secret) {
		return nil, true, input.NoGrant(kind, namespace, snapshot.KindSecret, secret)
	}
	if f = t.from.Certificates.Certificates.Get(c, secret); f.Problem != "" {
		return nil, false, "Secret " + secret.String() + " " + f.Problem
	}
	return f, false, ""
}

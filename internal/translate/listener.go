package translate

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
)

type listenerVerdict = verdict[gatewayv1.ListenerConditionReason]

// gatewayListener is one listener of a Gateway or a ListenerSet.
type gatewayListener struct {
	name     gatewayv1.SectionName
	port     int32
	protocol gatewayv1.ProtocolType
	hostname string // anyHost when unset

	accepted   listenerVerdict
	conflicted listenerVerdict
	resolved   listenerVerdict
	// overlaps names a listener at the same port whose hostname covers this one's, or is
	// covered by it (HTTPS).
	overlaps string
	// inner says that a listener with a wider hostname stands at the same port, of TLS: one
	// that takes requests.
	inner bool

	kinds    []gatewayv1.RouteGroupKind // of its routes, those that are supported
	from     gatewayv1.FromNamespaces
	selector *metav1.LabelSelector

	passthrough  bool                  // TLS is handed on as it is
	certificates []model.CertificateID // of HTTPS and TLS, those that can be shown
	minTLS       model.TLSVersion
}

// secure reports whether clients speak TLS with it.
func (l *gatewayListener) secure() bool {
	return l.protocol == gatewayv1.HTTPSProtocolType || l.protocol == gatewayv1.TLSProtocolType
}

// direct reports whether it leads to backends without a proxy.
func (l *gatewayListener) direct() bool {
	return l.protocol == gatewayv1.TCPProtocolType || l.protocol == gatewayv1.UDPProtocolType
}

// transport is what clients send.
func (l *gatewayListener) transport() model.Transport {
	if l.protocol == gatewayv1.UDPProtocolType {
		return model.UDP
	}
	return model.TCP
}

// serves reports whether requests can come in through it.
func (l *gatewayListener) serves() bool { return !l.accepted.failed }

// broken reports whether it is accepted and has no certificate to show: clients' connections
// are closed then, and routes attach all the same.
func (l *gatewayListener) broken() bool {
	return l.serves() && l.secure() && !l.passthrough && len(l.certificates) == 0
}

// modelProtocol is what the listener of the model speaks that serves it.
func (l *gatewayListener) modelProtocol() model.Protocol {
	if l.secure() {
		return model.ProtocolHTTPS
	}
	return model.ProtocolHTTP
}

// allows reports whether routes of a kind and namespace may attach; home is the namespace
// of the listener.
func (t *gatewayTables) allows(c *memo.Context, l *gatewayListener, kind snapshot.Kind, home, namespace string) bool {
	if !slices.ContainsFunc(l.kinds, func(k gatewayv1.RouteGroupKind) bool { return string(k.Kind) == string(kind) }) {
		return false
	}
	return t.selects(c, l.from, l.selector, home, namespace)
}

// selects reports whether an allowance of namespaces includes one.
func (t *gatewayTables) selects(c *memo.Context, from gatewayv1.FromNamespaces, selector *metav1.LabelSelector, home, namespace string) bool {
	switch from {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == home
	case gatewayv1.NamespacesFromSelector:
		s, err := metav1.LabelSelectorAsSelector(selector)
		return err == nil && s.Matches(labels.Set(t.in.labels.Get(c, namespace)))
	default:
		return false
	}
}

// bearer is who has listeners: a Gateway or a ListenerSet.
type bearer struct {
	t    *gatewayTables
	ctx  *memo.Context
	kind snapshot.Kind
	name snapshot.Name
}

// makeListener judges one listener for itself, before its neighbours are known.
func (b bearer) makeListener(o *gatewayv1.Listener, path string) gatewayListener {
	l := gatewayListener{name: o.Name, port: int32(o.Port), protocol: o.Protocol, hostname: anyHost, from: gatewayv1.NamespacesFromSame}
	l.passthrough = o.Protocol == gatewayv1.TLSProtocolType && o.TLS != nil && deref(o.TLS.Mode) == gatewayv1.TLSModePassthrough
	takes := l.takes()
	if len(takes) == 0 {
		l.accepted.fail(gatewayv1.ListenerReasonUnsupportedProtocol,
			path+".protocol: "+quote(string(o.Protocol))+" is not supported: only HTTP, HTTPS, TLS, TCP and UDP are")
	}
	if l.port < 1 || l.port > 65535 {
		l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, path+".port: "+strconv.Itoa(int(l.port))+" must be in the range 1-65535")
	} else if slices.Contains(b.t.in.config.ReservedPorts, uint16(l.port)) {
		l.accepted.fail(gatewayv1.ListenerReasonPortUnavailable, path+".port: "+strconv.Itoa(int(l.port))+" is used by Fairlead itself on every machine")
	}
	if host := strings.ToLower(string(deref(o.Hostname))); host != "" && !l.direct() {
		if problem := hostProblem(host, true); problem != "" {
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".hostname: "+problem)
		} else {
			l.hostname = host
		}
	}
	allowed := deref(o.AllowedRoutes)
	if n := allowed.Namespaces; n != nil {
		l.from = cmp.Or(deref(n.From), gatewayv1.NamespacesFromSame)
		switch l.from {
		case gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromNone:
		case gatewayv1.NamespacesFromSelector:
			l.selector = n.Selector
			if _, err := metav1.LabelSelectorAsSelector(n.Selector); err != nil {
				l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.selector: "+err.Error())
			} else if n.Selector == nil {
				l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.selector: must be set when from is Selector")
			}
		default:
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".allowedRoutes.namespaces.from: "+quote(string(l.from))+" is unknown")
		}
	}
	l.kinds = []gatewayv1.RouteGroupKind{}
	if len(allowed.Kinds) == 0 {
		for _, kind := range takes {
			l.kinds = append(l.kinds, routeKind(kind))
		}
	}
	for i, k := range allowed.Kinds {
		group := gatewayv1.Group(gatewayv1.GroupName)
		if k.Group != nil {
			group = *k.Group
		}
		kind := snapshot.Kind(k.Kind)
		if group != gatewayv1.GroupName || !slices.Contains(takes, kind) {
			l.resolved.fail(gatewayv1.ListenerReasonInvalidRouteKinds,
				path+"."+at("allowedRoutes.kinds", i)+": "+string(k.Kind)+" routes cannot attach to a listener of protocol "+string(o.Protocol))
			continue
		}
		if !slices.ContainsFunc(l.kinds, func(known gatewayv1.RouteGroupKind) bool { return string(known.Kind) == string(kind) }) {
			l.kinds = append(l.kinds, routeKind(kind))
		}
	}
	b.makeTLS(&l, o.TLS, path+".tls")
	return l
}

// takes are the kinds of routes that may attach to listeners of the protocol.
func (l *gatewayListener) takes() []snapshot.Kind {
	switch l.protocol {
	case gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType:
		return []snapshot.Kind{snapshot.KindHTTPRoute, snapshot.KindGRPCRoute}
	case gatewayv1.TLSProtocolType:
		if l.passthrough {
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
func (b bearer) makeTLS(l *gatewayListener, o *gatewayv1.ListenerTLSConfig, path string) {
	if !l.secure() {
		if o != nil && len(l.takes()) > 0 {
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+": must not be set for protocol "+string(l.protocol))
		}
		return
	}
	if l.passthrough {
		return // whatever else is said is the backends' business
	}
	if o == nil || len(o.CertificateRefs) == 0 {
		l.resolved.fail(gatewayv1.ListenerReasonInvalidCertificateRef, path+".certificateRefs: at least one is needed")
		return
	}
	if mode := deref(o.Mode); mode != "" && mode != gatewayv1.TLSModeTerminate {
		l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".mode: "+quote(string(mode))+" cannot be: "+
			when(l.protocol == gatewayv1.HTTPSProtocolType, "HTTPS listeners end TLS (Terminate)")+
			when(l.protocol != gatewayv1.HTTPSProtocolType, "only Terminate and Passthrough are known"))
	}
	for _, key := range sortedKeys(o.Options) {
		if !strings.HasPrefix(string(key), ownOptions) {
			continue // somebody else's
		}
		if string(key) != OptionMinTLS {
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".options: "+quote(string(key))+" is unknown: only "+OptionMinTLS+" is known")
			continue
		}
		switch version := model.TLSVersion(o.Options[key]); version {
		case "1.0", "1.1", "1.2", "1.3":
			l.minTLS = version
		default:
			l.accepted.fail(gatewayv1.ListenerReasonUnsupportedValue, path+".options["+OptionMinTLS+"]: "+quote(string(version))+" must be 1.0, 1.1, 1.2 or 1.3")
		}
	}
	shown := map[string]bool{} // key types, for a hostname that is a name
	for i := range o.CertificateRefs {
		id, keyType := b.certificate(&o.CertificateRefs[i], at(path+".certificateRefs", i), &l.resolved)
		exact := l.hostname != anyHost && !strings.HasPrefix(l.hostname, "*")
		if id == "" || slices.Contains(l.certificates, id) || exact && shown[keyType] {
			continue
		}
		shown[keyType] = true
		l.certificates = append(l.certificates, id)
	}
}

// Options of tls.options that are ours.
const (
	ownOptions = "fairlead.dev/"
	// OptionMinTLS is the least version of TLS that clients may speak.
	OptionMinTLS = "fairlead.dev/min-tls-version"
)

// certificate resolves a reference to a TLS Secret; the ID is empty when it is broken.
func (b bearer) certificate(ref *gatewayv1.SecretObjectReference, path string, resolved *listenerVerdict) (model.CertificateID, string) {
	f, refused, problem := b.t.resolveCertificate(b.ctx, b.kind, b.name.Namespace, ref)
	switch {
	case problem == "":
		return f.certificate.ID, f.keyType
	case refused:
		resolved.fail(gatewayv1.ListenerReasonRefNotPermitted, path+": "+problem)
	default:
		resolved.fail(gatewayv1.ListenerReasonInvalidCertificateRef, path+": "+problem)
	}
	return "", ""
}

// resolveCertificate finds the TLS Secret of a reference. With a problem there is no fact;
// refused says that the problem is a missing ReferenceGrant.
func (t *gatewayTables) resolveCertificate(c *memo.Context, kind snapshot.Kind, namespace string, ref *gatewayv1.SecretObjectReference) (f *certificateFact, refused bool, problem string) {
	if ref.Group != nil && *ref.Group != "" || ref.Kind != nil && *ref.Kind != gatewayv1.Kind(snapshot.KindSecret) {
		refKind := cmp.Or(string(deref(ref.Kind)), string(snapshot.KindSecret))
		return nil, false, kindText(string(deref(ref.Group)), refKind) + " holds no certificate: only Secret does"
	}
	secret := snapshot.Name{Namespace: cmp.Or(string(deref(ref.Namespace)), namespace), Name: string(ref.Name)}
	if secret.Namespace != namespace && !t.in.granted(c, gatewayv1.GroupName, kind, namespace, snapshot.KindSecret, secret) {
		return nil, true, noGrant(kind, namespace, snapshot.KindSecret, secret)
	}
	if f = t.tls.certificates.Get(c, secret); f.problem != "" {
		return nil, false, "Secret " + secret.String() + " " + f.problem
	}
	return f, false, ""
}

package catalog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/health"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate"
	"fairlead.dev/internal/xds"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// tlsWorld is what secrets are made of and needed by, changed at random.
type tlsWorld struct {
	rng          *rand.Rand
	certificates map[model.CertificateID]*model.Certificate
	authorities  map[model.AuthorityID]*model.Authority
	listeners    map[model.ListenerID]*model.Listener
	tls          map[model.HostKey]*model.TLSHost
	hosts        map[model.HostKey]*model.VirtualHost
	groups       map[model.GroupID]*model.BackendGroup
	views        map[model.ViewID]*model.View
}

var tlsListeners = []model.ListenerID{"https-443", "https-8443", "https-443_a_gw", "https-443_b_gw"}

func newTLSWorld(seed uint64) *tlsWorld {
	return &tlsWorld{
		rng:          rand.New(rand.NewPCG(seed, 2)),
		certificates: map[model.CertificateID]*model.Certificate{}, authorities: map[model.AuthorityID]*model.Authority{},
		listeners: map[model.ListenerID]*model.Listener{}, tls: map[model.HostKey]*model.TLSHost{},
		hosts: map[model.HostKey]*model.VirtualHost{}, groups: map[model.GroupID]*model.BackendGroup{}, views: map[model.ViewID]*model.View{},
	}
}

func noChanges() translate.Changes {
	return translate.Changes{
		Listeners: map[model.ListenerID]*model.Listener{}, VirtualHosts: map[model.HostKey]*model.VirtualHost{},
		Certificates: map[model.CertificateID]*model.Certificate{}, Authorities: map[model.AuthorityID]*model.Authority{},
		TLSHosts: map[model.HostKey]*model.TLSHost{}, Groups: map[model.GroupID]*model.BackendGroup{},
		Sets: map[model.SetID]*model.BackendSet{}, Views: map[model.ViewID]*model.View{},
	}
}

func (w *tlsWorld) step() translate.Changes {
	ch := noChanges()
	n := w.rng.IntN
	certificate := func() model.CertificateID { return model.CertificateID(fmt.Sprintf("t/c%d", n(3))) }
	authority := func() model.AuthorityID { return model.AuthorityID(fmt.Sprintf("ConfigMap/t/a%d", n(2))) }
	group := func() model.GroupID { return model.GroupID(fmt.Sprintf("g%d", n(3))) }
	for range 1 + n(4) {
		key := model.HostKey{Listener: tlsListeners[n(4)], Host: []string{"a.example", "b.example", "*.example", "*"}[n(4)]}
		switch n(8) {
		case 0:
			id := certificate()
			alter(w.rng, w.certificates, ch.Certificates, id, &model.Certificate{ID: id, Chain: fmt.Sprint(n(100)), Key: "k"})
		case 1:
			id := authority()
			alter(w.rng, w.authorities, ch.Authorities, id, &model.Authority{ID: id, PEM: fmt.Sprint(n(100))})
		case 2:
			l := &model.Listener{ID: key.Listener, Port: 443, Protocol: model.ProtocolHTTPS}
			if n(3) == 0 {
				l.ClientValidation = &model.ClientValidation{Authorities: []model.AuthorityID{authority()}}
			}
			if n(2) == 0 {
				l.Clients = &model.ClientSettings{HTTP3: n(2) == 0, AccessLog: &model.AccessLog{Collector: group()}}
			}
			alter(w.rng, w.listeners, ch.Listeners, l.ID, l)
		case 3:
			g := &model.BackendGroup{ID: group(), Set: "s"}
			if n(2) == 0 {
				g.TLS = &model.BackendTLS{ServerName: "x", Certificate: certificate(), Authorities: []model.AuthorityID{authority()}}
			}
			alter(w.rng, w.groups, ch.Groups, g.ID, g)
		case 4:
			id := model.ViewID(fmt.Sprintf("view-%d", n(2)))
			v := &model.View{ID: id}
			for _, l := range tlsListeners {
				if n(2) == 0 {
					v.Listeners = append(v.Listeners, l)
				}
			}
			alter(w.rng, w.views, ch.Views, id, v)
		case 5:
			alter(w.rng, w.hosts, ch.VirtualHosts, key, hostTo(key, group()))
		default:
			h := &model.TLSHost{HostKey: key}
			for range n(3) {
				h.Certificates = append(h.Certificates, certificate())
			}
			if len(h.Certificates) == 0 || n(4) == 0 {
				h.TCP = []model.WeightedGroup{{Group: group(), Weight: 1}}
			}
			if n(3) == 0 {
				h.MinVersion = "1.3"
			}
			alter(w.rng, w.tls, ch.TLSHosts, key, h)
		}
	}
	return ch
}

// apart says whether the host's certificate is another one than the name has at a listener
// with a smaller ID.
func (w *tlsWorld) apart(k model.HostKey) bool {
	for _, l := range tlsListeners { // in order
		other := w.tls[model.HostKey{Listener: l, Host: k.Host}]
		if other != nil && xds.OnDemand(*other) {
			return xds.OnDemand(*w.tls[k]) && l != k.Listener && other.Certificates[0] != w.tls[k].Certificates[0]
		}
	}
	return false
}

// resources are the listeners and secrets of a view, by the definition and not by
// differences.
func (w *tlsWorld) resources(t *testing.T, id model.ViewID) map[string]string {
	out := map[string]string{}
	add := func(typ delta.Type, name string, m proto.Message) {
		r, err := delta.NewResource(name, m)
		if err != nil {
			t.Fatal(err)
		}
		out[string(typ)+" "+name] = r.Version
	}
	secret := func(name string, id model.CertificateID) {
		if c := w.certificates[id]; c != nil {
			add(agentv1.SecretType, name, xds.Secret(name, *c))
		}
	}
	authorities := func(ids []model.AuthorityID) {
		if a := w.authorities[ids[0]]; a != nil {
			add(agentv1.SecretType, xds.AuthorityName(ids...), xds.AuthoritySecret(xds.AuthorityName(ids...), *a))
		}
	}
	if w.views[id] == nil {
		return out
	}
	for _, l := range w.views[id].Listeners {
		listener := w.listeners[l]
		used := map[model.GroupID]bool{}
		var names []xds.TLSHost
		quic := listener != nil && xds.HTTP3(*listener)
		for k, h := range w.tls {
			if k.Listener != l {
				continue
			}
			names = append(names, xds.TLSHost{TLSHost: *h, Apart: w.apart(k)})
			if demanded := xds.OnDemand(*h) && !w.apart(k); demanded {
				secret(h.Host, h.Certificates[0])
				if !quic {
					continue
				}
			}
			for _, c := range h.Certificates {
				secret(xds.SecretName(c), c)
			}
			for _, g := range h.Groups() {
				used[g] = true
			}
		}
		for k, h := range w.hosts {
			if k.Listener == l {
				for _, g := range h.Groups() {
					used[g] = true
				}
			}
		}
		if listener != nil {
			add(agentv1.ListenerType, string(l), xds.Listener(*listener, names, xds.Options{}))
			if quic {
				add(agentv1.ListenerType, xds.QUICListenerName(l), xds.QUICListener(*listener, names, xds.Options{}))
			}
			if listener.ClientValidation != nil {
				authorities(listener.ClientValidation.Authorities)
			}
			for _, g := range listener.Groups() {
				used[g] = true
			}
		}
		for g := range used {
			if group := w.groups[g]; group != nil && group.TLS != nil {
				secret(xds.SecretName(group.TLS.Certificate), group.TLS.Certificate)
				authorities(group.TLS.Authorities)
			}
		}
	}
	return out
}

// Whatever changes in whatever order, a view holds the listeners that its hosts ask for
// and the secrets that it serves with, and no other.
func TestCatalogSecretsAddUp(t *testing.T) {
	for seed := range uint64(6) {
		w := newTLSWorld(seed)
		c := New(Config{Health: health.New()})
		held := map[model.ViewID]map[string]string{"view-0": {}, "view-1": {}}
		for step := range 150 {
			for v, list := range c.Apply(w.step()) {
				for _, change := range list {
					key := string(change.Type) + " " + change.Name
					switch {
					case change.Type != agentv1.SecretType && change.Type != agentv1.ListenerType:
					case change.Resource == nil:
						delete(held[v], key)
					default:
						held[v][key] = change.Resource.Version
					}
				}
			}
			for v := range held {
				if want := w.resources(t, v); !maps.Equal(held[v], want) {
					t.Fatalf("seed %d, step %d: %s holds %d resources, want %d; differing: %v", seed, step, v, len(held[v]), len(want), difference(held[v], want))
				}
			}
		}
		end := noChanges()
		for id := range w.listeners {
			end.Listeners[id] = nil
		}
		for k := range w.tls {
			end.TLSHosts[k] = nil
		}
		for k := range w.hosts {
			end.VirtualHosts[k] = nil
		}
		for id := range w.groups {
			end.Groups[id] = nil
		}
		for id := range c.listeners {
			end.Listeners[id] = nil
		}
		for id := range w.views {
			end.Views[id] = nil
		}
		for id := range w.certificates {
			end.Certificates[id] = nil
		}
		for id := range w.authorities {
			end.Authorities[id] = nil
		}
		c.Apply(end)
		s := c.secrets
		if n := len(s.entries) + len(s.ofCertificate) + len(s.ofAuthority) + len(s.demanded) + len(s.certificates) + len(s.authorities) + len(c.listeners); n != 0 {
			t.Errorf("seed %d: %d things are left: %v", seed, n, slices.Sorted(maps.Keys(s.entries)))
		}
	}
}

// A renewed certificate is one resource for each name that is served with it, and a host
// more one of its own: the listener is the same.
func TestCatalogTouchesWhatTLSChanged(t *testing.T) {
	c := New(Config{Health: health.New()})
	ch := noChanges()
	ch.Listeners["https-443"] = &model.Listener{ID: "https-443", Port: 443, Protocol: model.ProtocolHTTPS}
	ch.Views["all"] = &model.View{ID: "all", Listeners: []model.ListenerID{"https-443"}}
	host := func(i int) (model.HostKey, *model.TLSHost, *model.Certificate) {
		k := model.HostKey{Listener: "https-443", Host: fmt.Sprintf("h%d.example", i)}
		cert := &model.Certificate{ID: model.CertificateID(fmt.Sprintf("t/c%d", i)), Chain: "chain", Key: "a private key"}
		return k, &model.TLSHost{HostKey: k, Certificates: []model.CertificateID{cert.ID}}, cert
	}
	for i := range 2000 {
		k, h, cert := host(i)
		ch.TLSHosts[k], ch.Certificates[cert.ID] = h, cert
	}
	all := c.Apply(ch)["all"]
	if want := 1 + 2*(xds.Shards("https-443")+1) + 2000; len(all) != want {
		t.Errorf("%d resources, want %d", len(all), want)
	}
	renew := noChanges()
	renew.Certificates["t/c7"] = &model.Certificate{ID: "t/c7", Chain: "new", Key: "a private key"}
	more := noChanges()
	k, h, cert := host(2000)
	more.TLSHosts[k], more.Certificates[cert.ID] = h, cert
	for name, one := range map[string]translate.Changes{"certificate": renew, "host": more} {
		got := c.Apply(one)["all"]
		if len(got) != 1 || got[0].Type != agentv1.SecretType {
			t.Errorf("one %s touched %d resources", name, len(got))
		}
	}
	// What is said of a secret that cannot be sent does not show it.
	c.limit = 10
	c.Apply(renew)
	for _, p := range c.UnfitProblems() {
		if strings.Contains(fmt.Sprint(p), "private") || !strings.Contains(p.Message, "h7.example") {
			t.Errorf("problem: %+v", p)
		}
	}
	if len(c.UnfitProblems()) != 1 {
		t.Errorf("problems: %v", c.UnfitProblems())
	}
}

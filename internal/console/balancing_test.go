package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

var shop = v1.FrontendKey{VIP: netip.MustParseAddr("192.0.2.1"), Transport: v1.TCP, Port: 80}

func backendRows() []v1.BackendStatus {
	web := v1.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	return []v1.BackendStatus{
		{
			Frontend: shop, Owner: web, Percent: 100, RowsPercent: 99.9, Known: true, Flows: 3, NewFlows: 4, Packets: 5, Bytes: 6,
			FrontendBackend: v1.FrontendBackend{
				Address: netip.MustParseAddrPort("10.0.0.1:8080"), Machine: "host-1", Weight: 100, HopWeight: 200, State: v1.BackendReady, Health: v1.Healthy,
			},
			Says: []v1.HealthSaid{{Machine: "a", Health: v1.Healthy}, {Machine: "b", Health: v1.Unhealthy, Message: "refused"}},
		},
		{Frontend: shop, Owner: web, FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort("10.0.0.2:8080"), HopWeight: 100, State: v1.BackendDraining}},
		{
			Frontend: v1.FrontendKey{VIP: shop.VIP, Transport: v1.TCP, Port: 443}, Owner: v1.Object{Kind: "IngressRoute"}, Percent: 100,
			FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort("192.0.2.1:443"), Machine: "edge-1", Weight: 100, HopWeight: 100, State: v1.BackendReady},
		},
	}
}

// serving is a client of a console.
func serving(t *testing.T, c Config) Client {
	t.Helper()
	c.Health, c.Metrics = health{}, prometheus.NewRegistry()
	s := httptest.NewServer(Handler(c))
	t.Cleanup(s.Close)
	return Client{URL: s.URL, HTTP: s.Client()}
}

func TestBackends(t *testing.T) {
	var asked string
	c := serving(t, Config{Backends: func(_ context.Context, of string) ([]model.BackendStatus, error) {
		asked = of
		if of == "nobody" {
			return nil, fmt.Errorf("%w of that name", ErrNone)
		}
		return as[[]model.BackendStatus](t, backendRows()), nil
	}})
	got, err := c.Backends(t.Context(), "shop/web")
	if err != nil || asked != "shop/web" || !reflect.DeepEqual(got, backendRows()) {
		t.Errorf("asked for %q: %+v, %v", asked, got, err)
	}
	if _, err := c.Backends(t.Context(), "nobody"); err == nil || !strings.Contains(err.Error(), "404 Not Found: there is none of that name") {
		t.Errorf("of nobody: %v", err)
	}
	for name, x := range map[string]struct {
		rows []v1.BackendStatus
		wide bool
		most int
		want string
	}{
		"text": {backendRows(), false, 0, `
tcp://192.0.2.1:80  Service shop/web
  ADDRESS        MACHINE  STATE     HEALTH            WEIGHT  HOPS  SHARE  FLOWS  PACKETS
  10.0.0.1:8080  host-1   ready     healthy (1 of 2)  100     200   100%   3      5
  10.0.0.2:8080  -        draining  -                 0       100   0%     -      -

tcp://192.0.2.1:443  the root IngressRoutes that share an address
  ADDRESS  MACHINE  STATE  HEALTH  WEIGHT  HOPS  SHARE  FLOWS  PACKETS
  proxy    edge-1   ready  -       100     100   100%   -      -
`},
		"wide": {backendRows(), true, 1, `
tcp://192.0.2.1:80  Service shop/web
  ADDRESS        MACHINE  STATE  HEALTH            WEIGHT  HOPS  SHARE  FLOWS  PACKETS  ROWS   NEW FLOWS  BYTES  SAYS
  10.0.0.1:8080  host-1   ready  healthy (1 of 2)  100     200   100%   3      5        99.9%  4          6      a healthy; b unhealthy: refused
2 more lines: --all prints them, a FRONTEND or SERVICE narrows them down
`},
		"backups": {[]v1.BackendStatus{
			{Frontend: shop, Owner: backendRows()[0].Owner, FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort("10.0.0.8:8080"), Weight: 300, HopWeight: 300, State: v1.BackendReady, Backup: true}},
			{Frontend: shop, FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort("10.0.0.9:8080"), State: v1.BackendDraining, Backup: true, Standby: 300}},
		}, false, 0, `
tcp://192.0.2.1:80  Service shop/web
  ADDRESS        MACHINE  STATE           HEALTH  WEIGHT  HOPS  SHARE  FLOWS  PACKETS
  10.0.0.8:8080  -        ready (backup)  -       300     300   0%     -      -
  10.0.0.9:8080  -        standby         -       0       0     0%     -      -
`},
		"not checked": {[]v1.BackendStatus{{Frontend: shop, Owner: v1.Object{Kind: "Service", Namespace: "shop", Name: "web"}, Says: []v1.HealthSaid{{Message: "not checked: too many"}}, FrontendBackend: v1.FrontendBackend{Address: netip.MustParseAddrPort("10.0.0.1:8080"), State: v1.BackendReady}}}, true, 0, `
tcp://192.0.2.1:80  Service shop/web
  ADDRESS        MACHINE  STATE  HEALTH       WEIGHT  HOPS  SHARE  FLOWS  PACKETS  ROWS  NEW FLOWS  BYTES  SAYS
  10.0.0.1:8080  -        ready  not checked  0       0     0%     -      -        -     -          -      not checked: too many
`},
		"none": {nil, false, 0, "\nno backend: no frontend is balanced in the kernel, or these frontends have no backend (`fairlead vips` shows the frontends);\n`fairlead routes` shows the routes of proxies and their backends\n"},
	} {
		var b bytes.Buffer
		if err := WriteBackends(&b, x.rows, x.wide, x.most); err != nil || b.String() != x.want[1:] {
			t.Errorf("%s: %v, and\n%s", name, err, b.String())
		}
	}
}

func TestFlows(t *testing.T) {
	var asked FlowFilter
	list := v1.FlowList{Answered: []string{"edge-1", "edge-2"}, Truncated: []string{"edge-2"}, Flows: []v1.FlowAt{{At: "edge-1", Flow: v1.Flow{
		Frontend: shop, Client: netip.MustParseAddrPort("198.51.100.7:4000"), Backend: netip.MustParseAddrPort("10.0.0.1:8080"), State: "established", Idle: 1500 * time.Millisecond,
	}}}}
	c := serving(t, Config{Flows: func(_ context.Context, f FlowFilter) (model.FlowList, error) {
		if asked = f; f.Machine == "standby" {
			return model.FlowList{}, errors.New("this plane does not lead")
		}
		return as[model.FlowList](t, list), nil
	}})
	filter := FlowFilter{Machine: "edge-1", FlowQuery: model.FlowQuery{
		Frontend: as[model.FrontendKey](t, shop), Client: netip.MustParsePrefix("198.51.100.0/24"), Backend: netip.MustParseAddr("10.0.0.1"), Limit: 7,
	}}
	for _, f := range []FlowFilter{filter, {}} {
		got, err := c.Flows(t.Context(), f)
		if err != nil || asked != f || !reflect.DeepEqual(got, list) {
			t.Errorf("asked %+v for %+v: %+v, %v", asked, f, got, err)
		}
	}
	if _, err := c.Flows(t.Context(), FlowFilter{Machine: "standby"}); err == nil || !strings.Contains(err.Error(), "503 Service Unavailable: this plane does not lead") {
		t.Errorf("of a standby: %v", err)
	}
	for query, want := range map[string]string{
		"x=1": "unknown", "frontend=192.0.2.1": "tcp://VIP:PORT", "client=x": "CIDR", "backend=x": "address", "limit=-1": "up to 20000", "limit=20001": "up to 20000", "%": "query",
	} {
		if body, err := c.Get(t.Context(), v1.FlowsPath+"?"+query); err == nil || !strings.Contains(err.Error(), http.StatusText(http.StatusBadRequest)) || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, %q; want %q", query, err, body, want)
		}
	}
	for _, c := range []struct {
		want   string
		list   v1.FlowList
		chosen bool
	}{
		{want: `AT      FRONTEND            CLIENT             BACKEND        MACHINE  STATE        IDLE
edge-1  tcp://192.0.2.1:80  198.51.100.7:4000  10.0.0.1:8080  -        established  2s
there are more at edge-2: --limit, --frontend, --client and --backend choose
`, list: list},
		{
			want: "no such flow at edge-1\nnot answered in time: edge-2, edge-3, whose flows are missing here (`fairlead status` shows the state of machines)\n",
			list: v1.FlowList{Answered: []string{"edge-1"}, Silent: []string{"edge-2", "edge-3"}}, chosen: true,
		},
		{want: "no machine has answered: `fairlead status` says which are connected\n"},
		{want: "no such flow at edge-1\n", list: v1.FlowList{Answered: []string{"edge-1"}}, chosen: true},
		{
			want: "no flow at edge-1: no frontend has a connection (`fairlead vips` shows the frontends; connections to proxies at a machine's own addresses are not flows)\n",
			list: v1.FlowList{Answered: []string{"edge-1"}},
		},
	} {
		var b bytes.Buffer
		if err := WriteFlows(&b, c.list, c.chosen); err != nil || b.String() != c.want {
			t.Errorf("%v, and\n%s\nwant\n%s", err, b.String(), c.want)
		}
	}
}

func TestClientsAreAddressesOrNetworks(t *testing.T) {
	for text, want := range map[string]string{"192.0.2.7": "192.0.2.7/32", "192.0.2.7/24": "192.0.2.0/24", "2001:db8::1": "2001:db8::1/128"} {
		if f, err := ParseFlowFilter("", text, "", "", ""); err != nil || f.Client.String() != want {
			t.Errorf("%s is %s, %v", text, f.Client, err)
		}
	}
}

func TestVIPsHaveFrontends(t *testing.T) {
	web := v1.Object{Kind: "Service", Namespace: "shop", Name: "web"}
	s := v1.Status{
		VIPs: []v1.VIPStatus{{
			Assignment: v1.Assignment{Address: shop.VIP, Pool: "public", Owner: web, Mode: v1.AnnounceBGP, Machines: []string{"a", "b"}},
			State:      "announced", Frontends: []v1.FrontendKey{shop}, At: []v1.VIPAt{{Machine: "a", VIPObserved: v1.VIPObserved{State: v1.VIPAnnounced}}, {Machine: "z", HandsOver: true, VIPObserved: v1.VIPObserved{State: v1.VIPAnnounced}}},
		}},
		Frontends: []v1.FrontendStatus{{
			FrontendKey: shop, Owner: web, State: "balanced", Backends: 3, Available: 2, Message: "b: the way back is closed", At: []v1.FrontendAt{
				{Machine: "a", State: v1.FrontendBalanced, DataPlane: v1.DataPlaneXDP, Mode: v1.ModeDSRGeneve},
				{Machine: "b", State: v1.FrontendBalanced, DataPlane: v1.DataPlaneXDP, Mode: v1.ModeNAT},
				{Machine: "c", State: v1.FrontendBalanced, DataPlane: v1.DataPlaneXDP, Mode: v1.ModeDSRGeneve},
				{Machine: "d", State: v1.FrontendRefused},
			},
		}, {FrontendKey: v1.FrontendKey{VIP: shop.VIP, Transport: v1.TCP, Port: 443}, Owner: web, Listener: "https-443", State: "idle", At: []v1.FrontendAt{}}},
	}
	want := `
VIPs (1)
  ADDRESS    POOL    OWNER             BY   STATE      MACHINES                    FRONTENDS
  192.0.2.1  public  Service shop/web  BGP  announced  1 of 2: a; handing over: z  tcp/80

Frontends (2)
  FRONTEND             OWNER             TO        STATE     BACKENDS  BY
  tcp://192.0.2.1:80   Service shop/web  backends  balanced  2 of 3    XDP DSRGeneve at a,c; XDP NAT at b
  tcp://192.0.2.1:443  Service shop/web  proxies   idle      0 of 0    -
  tcp://192.0.2.1:80: b: the way back is closed
`
	var b bytes.Buffer
	if err := WriteVIPs(&b, s, TextOptions{}); err != nil || b.String() != want {
		t.Errorf("%v, and\n%s", err, b.String())
	}
}

func TestAnnouncers(t *testing.T) {
	at := func(names ...string) (list []v1.VIPAt) {
		for _, name := range names {
			list = append(list, v1.VIPAt{Machine: name, HandsOver: name > "b", VIPObserved: v1.VIPObserved{State: v1.VIPAnnounced}})
		}
		return append(list, v1.VIPAt{Machine: "b", VIPObserved: v1.VIPObserved{State: v1.VIPWithheld}})
	}
	for want, v := range map[string]v1.VIPStatus{
		"0 of 2: -":                  {At: at()},
		"1 of 2: a":                  {At: at("a")},
		"0 of 2: -; handing over: z": {At: at("z")},
		"-":                          {Assignment: v1.Assignment{Mode: v1.AnnounceL2}, At: at()},
		"a":                          {Assignment: v1.Assignment{Mode: v1.AnnounceL2}, At: at("a")},
		"-; handing over: y,z":       {Assignment: v1.Assignment{Mode: v1.AnnounceL2}, At: at("y", "z")},
	} {
		v.Machines = []string{"a", "b"}
		if got := announcers(v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// One cause at many VIPs, frontends or sessions is said once.
func TestOneCauseOfManyIsSaidOnce(t *testing.T) {
	const why = "b: its program is not loaded: the kernel is too old"
	var s v1.Status
	for i := range 20 {
		k := v1.FrontendKey{VIP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), Transport: v1.TCP, Port: 80}
		s.VIPs = append(s.VIPs, v1.VIPStatus{Assignment: v1.Assignment{Address: k.VIP}, State: "not announced", Message: why})
		s.Frontends = append(s.Frontends, v1.FrontendStatus{FrontendKey: k, Message: why})
		s.Sessions = append(s.Sessions, v1.SessionStatus{Machine: fmt.Sprintf("edge-%d", i), Session: v1.Session{Peer: "tor", Reason: "Timeout", Message: "no answer"}})
	}
	for want, write := range map[string]func(io.Writer, v1.Status, TextOptions) error{
		"\nNot announced, or not everywhere\n  192.0.2.1, 192.0.2.2, 192.0.2.3 and 17 more: " + why + "\n\nFrontends": WriteVIPs,
		"\n  tcp://192.0.2.1:80, tcp://192.0.2.2:80, tcp://192.0.2.3:80 and 17 more: " + why + "\n":                   WriteVIPs,
		"\nProblems\n  edge-0 to tor, edge-1 to tor, edge-2 to tor and 17 more: Timeout: no answer\n":                 WriteBGP,
	} {
		var b bytes.Buffer
		if err := write(&b, s, TextOptions{MaxRows: 50}); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v, and no\n%s\nin\n%s", err, want, b.String())
		}
	}
	var b bytes.Buffer
	if err := WriteVIPs(&b, s, TextOptions{}); err != nil || !strings.Contains(b.String(), "192.0.2.20: "+why) {
		t.Errorf("%v: --all does not name all:\n%s", err, b.String())
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	memberpools "github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
	"fairlead.dev/lab/openstack"
	"fairlead.dev/lab/rig"
)

// DiscoveryCloud is how soon changes of a cloud are followed, and what a large one costs.
type DiscoveryCloud struct {
	// Octavia is nil if its programs are not installed.
	Octavia  *DiscoveryOctavia  `json:"octavia,omitempty"`
	Projects *DiscoveryProjects `json:"projects,omitempty"`
}

// DiscoveryOctavia is a cloud with a keystone and an octavia.
type DiscoveryOctavia struct {
	LoadBalancers int `json:"load_balancers"`
	Members       int `json:"members"`
	// Synced is from the creation of the Upstream until all of the cloud was in effect.
	Synced float64 `json:"synced_s"`
	// Polled and Notified are how soon a change of a member is followed, without notifications and with them.
	Polled   DiscoveryMembers `json:"polled"`
	Notified DiscoveryMembers `json:"notified"`
	// Requests a minute, to keystone and octavia together, while nothing changes.
	Requests float64 `json:"requests_per_minute_at_rest"`
	// Deleted is from the answer to the deletion of a load balancer until its Service was gone.
	Deleted Delay  `json:"deleted"`
	Goal    string `json:"goal"`
	Met     bool   `json:"met"`
}

// DiscoveryMembers is how soon changes of a member are followed, from the answer of Octavia's API on.
type DiscoveryMembers struct {
	// Up is until the first request to a member that was enabled, Down until the last one to a member that was disabled, and Both
	// are all of them.
	Up       Delay `json:"up"`
	Down     Delay `json:"down"`
	Both     Delay `json:"both"`
	Requests int   `json:"requests"`
	Failed   int   `json:"failed"`
}

// DiscoveryProjects is one complete reading of a simulated cloud with many projects, each with one load balancer.
type DiscoveryProjects struct {
	Projects int     `json:"projects"`
	Latency  float64 `json:"latency_of_an_answer_ms"`
	// Allowed is spec.requestsPerSecond.
	Allowed int `json:"requests_per_s_allowed"`
	// Swept is from the creation of the Upstream until all was in effect; Gimbal the same requests in Gimbal's way: project
	// after project, and one request after the other.
	Swept          float64 `json:"swept_s"`
	Requests       int     `json:"requests"`
	Gimbal         float64 `json:"gimbal_s"`
	GimbalRequests int     `json:"gimbal_requests"`
	// GimbalProjects is how many projects were read in that way; Gimbal is what follows for all.
	GimbalProjects int `json:"gimbal_projects"`
}

const (
	cloudUpstream  = "cloud"
	cloudNamespace = "admin"
	cloudDeleted   = 5
	cloudQuiet     = 2500 * time.Millisecond
	cloudRate      = 200
	simulatedPort  = 5000
	// simulatedLatency of each answer: a request to a real octavia takes longer.
	simulatedLatency = 50 * time.Millisecond
	// simulatedRequests a second are allowed by spec.requestsPerSecond of the large cloud. The default, 20, is the limit otherwise.
	simulatedRequests = 1000
	gimbalProjects    = 200
)

type cloudSite struct {
	*routesBench
	o        DiscoveryOptions
	typed    kube.Client
	requests atomic.Int64 // to keystone and octavia
	close    []func()

	cloud    *openstack.Cloud
	client   *gophercloud.ServiceClient
	result   *DiscoveryOctavia
	seeded   []string
	balancer string
	pool     string
	member   string // the changing one
}

func discoverCloud(ctx context.Context, o DiscoveryOptions) (r *DiscoveryCloud, err error) {
	l, err := lab.Up(ctx, lab.Topology{Name: "bench-clouds", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane}, {Name: "edge-1", Role: lab.RoleEdge}, {Name: "os1", Role: lab.RoleBackends, Addresses: 2},
	}}, o.Lab)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	s := &cloudSite{o: o, routesBench: newRoutesBench(RoutesOptions{NetworkOptions: o.NetworkOptions}, l, 1)}
	defer func() {
		for i := len(s.close) - 1; i >= 0; i-- {
			s.close[i]()
		}
	}()
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	r = &DiscoveryCloud{}
	if r.Octavia, err = s.octavia(ctx); err != nil {
		return nil, err
	}
	r.Projects, err = s.projects(ctx)
	return r, err
}

func (s *cloudSite) begin(ctx context.Context) (err error) {
	s.progress("openstack: start a plane and an edge")
	if _, err := s.StartBackends(ctx, s.backends, s.backends.Addrs4(), backendPort); err != nil {
		return err
	}
	if s.plane, err = s.StartPlane(ctx, s.machine, rig.PlaneOptions{Args: []string{"--upstream-allow", "plain-http,loopback"}}); err != nil {
		return err
	}
	if s.typed, err = typedClient(s.plane.Kubeconfig(), s.machine); err != nil {
		return err
	}
	if s.agent, err = s.StartAgent(ctx, s.edge, s.plane, "--envoy-threads", "1"); err != nil {
		return err
	}
	return s.agent.AwaitReady(ctx)
}

// octavia measures a cloud with a keystone and an octavia; nil: there are none here.
func (s *cloudSite) octavia(ctx context.Context) (*DiscoveryOctavia, error) {
	s.progress("openstack: start keystone, octavia and RabbitMQ")
	dir, err := s.Lab.Machine("plane").Dir("cloud")
	if err != nil {
		return nil, err
	}
	s.cloud, err = openstack.Start(ctx, openstack.Config{Dir: dir, Notifications: true})
	if errors.Is(err, openstack.ErrMissing) {
		s.progress("openstack: left out: %v", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.close = append(s.close, s.cloud.Stop)
	s.result = &DiscoveryOctavia{
		LoadBalancers: s.o.LoadBalancers, Members: s.o.Members,
		Goal: "p99 < 2 s by polling, < 1.5 s with notifications; < 90 requests a minute at rest; deleted < 60 s",
	}
	for _, step := range []func(context.Context) error{s.relay, s.seed, s.follow, s.polled, s.rest, s.deleted, s.notified} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r := s.result
	r.Met = r.Polled.Both.P99 < 2000 && r.Notified.Both.P99 < 1500 && r.Requests < 90 && r.Deleted.Max < 60_000 && r.Polled.Failed+r.Notified.Failed == 0
	return r, nil
}

// relay makes the cloud, which is on this host's loopback, answer on the plane's loopback.
func (s *cloudSite) relay(ctx context.Context) error {
	for _, text := range []string{s.cloud.AuthURL, s.cloud.LoadBalancerURL} {
		to, err := url.Parse(text)
		if err != nil {
			return err
		}
		proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: to.Scheme, Host: to.Host})
		if err := s.listen(ctx, to.Host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.requests.Add(1)
			proxy.ServeHTTP(w, r)
		})); err != nil {
			return err
		}
	}
	rabbit, err := url.Parse(s.cloud.NotificationsURL)
	if err != nil {
		return err
	}
	l, err := s.machine.Listen(ctx, "tcp4", rabbit.Host)
	if err != nil {
		return err
	}
	s.close = append(s.close, func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go join(ctx, c, rabbit.Host)
		}
	}()
	return nil
}

// listen serves HTTP on the plane's machine until the site ends.
func (s *cloudSite) listen(ctx context.Context, address string, h http.Handler) error {
	l, err := s.machine.Listen(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	s.close = append(s.close, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }()
	return nil
}

// join copies between a connection and a new one to an address of this host.
func join(ctx context.Context, c net.Conn, address string) {
	defer func() { _ = c.Close() }()
	to, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	go func() {
		_, _ = io.Copy(to, c)
		_ = to.Close()
	}()
	_, _ = io.Copy(c, to)
}

// seed fills the cloud, and makes the load balancer whose member changes.
func (s *cloudSite) seed(ctx context.Context) error {
	s.progress("openstack: %d load balancers, %d members", s.o.LoadBalancers, s.o.Members)
	provider, err := s.cloud.Provider(ctx, "admin", openstack.Password, "admin")
	if err != nil {
		return err
	}
	identity, err := clients.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return err
	}
	pages, err := projects.List(identity, projects.ListOpts{Name: "admin"}).AllPages(ctx)
	if err != nil {
		return err
	}
	found, err := projects.ExtractProjects(pages)
	if err != nil || len(found) != 1 {
		return errors.Join(fmt.Errorf("there are %d projects admin", len(found)), err)
	}
	if s.seeded, err = s.cloud.Seed(ctx, s.o.LoadBalancers, max(1, s.o.Members/max(1, s.o.LoadBalancers)), found[0].ID); err != nil {
		return err
	}
	if s.client, err = clients.NewLoadBalancerV2(provider, gophercloud.EndpointOpts{Region: "RegionOne"}); err != nil {
		return err
	}
	members := make([]memberpools.CreateMemberOpts, 0, 2)
	for _, a := range s.backends.Addrs4() {
		members = append(members, memberpools.CreateMemberOpts{Address: a.String(), ProtocolPort: backendPort})
	}
	lb, err := loadbalancers.Create(ctx, s.client, loadbalancers.CreateOpts{
		Name: "measured", ProjectID: found[0].ID, VipSubnetID: "11111111-1111-1111-1111-111111111111",
		Listeners: []listeners.CreateOpts{{Name: "http", Protocol: "HTTP", ProtocolPort: 80, DefaultPool: &memberpools.CreateOpts{
			Name: "pool", Protocol: "HTTP", LBMethod: "ROUND_ROBIN", Members: members,
		}}},
	}).Extract()
	if err != nil {
		return err
	}
	s.balancer = lb.ID
	return s.Await(ctx, "the load balancer to be active", func(ctx context.Context) error {
		lb, err := loadbalancers.Get(ctx, s.client, s.balancer).Extract()
		if err != nil {
			return err
		}
		if lb.ProvisioningStatus != "ACTIVE" || len(lb.Pools) != 1 {
			return errors.New(lb.ProvisioningStatus)
		}
		s.pool = lb.Pools[0].ID
		pages, err := memberpools.ListMembers(s.client, s.pool, memberpools.ListMembersOpts{Address: s.backends.Addrs4()[1].String()}).AllPages(ctx)
		if err != nil {
			return err
		}
		all, err := memberpools.ExtractMembers(pages)
		if err != nil || len(all) != 1 {
			return errors.Join(fmt.Errorf("it has %d such members", len(all)), err)
		}
		s.member = all[0].ID
		return nil
	})
}

// createCloud has a cloud followed, by so many requests a second; 0: the default.
func (s *cloudSite) createCloud(ctx context.Context, name string, clouds []byte, requests int32) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: name}, Data: map[string][]byte{snapshot.CloudsKey: clouds}}
	if err := s.typed.Create(ctx, secret); err != nil {
		return err
	}
	return s.typed.Create(ctx, &v1alpha1.Upstream{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.UpstreamSpec{
		OpenStack: &v1alpha1.OpenStackUpstream{Secret: name}, RequestsPerSecond: requests,
	}})
}

// awaitUpstream waits until an Upstream is current and has so many services.
func (s *cloudSite) awaitUpstream(ctx context.Context, name string, services int) error {
	return pollFor(ctx, 100*time.Millisecond, func() (bool, error) {
		var u v1alpha1.Upstream
		if err := s.typed.Get(ctx, kube.ObjectKey{Name: name}, &u); err != nil {
			return false, err
		}
		for _, c := range u.Status.Conditions {
			if c.Status != metav1.ConditionTrue {
				return false, fmt.Errorf("%s: %s: %s", name, c.Reason, c.Message)
			}
		}
		if n := int(u.Status.Replicated.Services); len(u.Status.Conditions) == 0 || n < services {
			return false, fmt.Errorf("%s has %d of %d services", name, n, services)
		}
		return true, nil
	})
}

func (s *cloudSite) follow(ctx context.Context) error {
	if err := s.typed.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cloudNamespace}}); err != nil {
		return err
	}
	began := s.Now()
	if err := s.createCloud(ctx, cloudUpstream, s.cloud.CloudsYAML(), 0); err != nil {
		return err
	}
	if err := s.awaitUpstream(ctx, cloudUpstream, s.o.LoadBalancers+1); err != nil {
		return err
	}
	s.result.Synced = seconds(s.Now().Sub(began))
	manifest := gatewayClass + "---\n" + strings.ReplaceAll(gatewayManifest("edge")+"---\n"+routeManifest("edge"), "namespace: default", "namespace: "+cloudNamespace)
	manifest = strings.ReplaceAll(manifest, "[{name: app, port: 80}]", fmt.Sprintf("[{name: %s-%s, port: 80}]", cloudUpstream, s.balancer))
	_, err := s.plane.Apply(ctx, manifest)
	return err
}

// change enables or disables the member. It returns when the API had answered.
func (s *cloudSite) change(ctx context.Context, up bool) (time.Time, error) {
	for {
		_, err := memberpools.UpdateMember(ctx, s.client, s.pool, s.member, memberpools.UpdateMemberOpts{AdminStateUp: &up}).Extract()
		if err == nil || !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
			return s.Now(), err
		}
		if err := pauseFor(ctx, 50*time.Millisecond); err != nil { // an earlier change goes on
			return time.Time{}, err
		}
	}
}

// members measures changes of the member.
func (s *cloudSite) members(ctx context.Context) (m DiscoveryMembers, err error) {
	p := &watchedPath{name: "envoy", changing: backendName(1), config: load.Config{
		Address: netip.AddrPortFrom(s.edge.Addr4(), vipPort).String(), Host: vipHost, Dial: s.edge.Dial, Now: s.Now, Rate: cloudRate, Concurrency: 16,
	}}
	one := p.config
	one.Requests = 1
	if err := s.Await(ctx, "an answer", func(ctx context.Context) error {
		report, err := load.Do(ctx, one)
		if err == nil && report.Failed > 0 {
			err = errors.New("a request failed")
		}
		return err
	}); err != nil {
		return m, err
	}
	p.config.OnResult = p.note
	run, err := load.Start(ctx, p.config)
	if err != nil {
		return m, err
	}
	var up, down []time.Duration
	for i := range s.o.MemberChanges {
		at, err := s.change(ctx, false)
		if err != nil {
			return m, err
		}
		took, err := p.awaitQuiet(ctx, at, cloudQuiet)
		if err != nil {
			return m, err
		}
		down = append(down, took)
		// Polls come each second: changes are at all times between two of them.
		if err := pauseFor(ctx, time.Duration(i%10)*100*time.Millisecond); err != nil {
			return m, err
		}
		p.arm()
		if at, err = s.change(ctx, true); err != nil {
			return m, err
		}
		if took, err = p.awaitFirst(ctx, at); err != nil {
			return m, err
		}
		up = append(up, took)
		if err := pauseFor(ctx, time.Duration(i%7)*100*time.Millisecond); err != nil {
			return m, err
		}
	}
	report := run.Stop()
	return DiscoveryMembers{Up: delayOf(up), Down: delayOf(down), Both: delayOf(append(up, down...)), Requests: report.Requests, Failed: report.Failed}, nil
}

func (s *cloudSite) polled(ctx context.Context) (err error) {
	s.progress("openstack: change a member %d times, polled", 2*s.o.MemberChanges)
	s.result.Polled, err = s.members(ctx)
	return err
}

func (s *cloudSite) notified(ctx context.Context) (err error) {
	s.progress("openstack: change a member %d times, with notifications", 2*s.o.MemberChanges)
	var secret corev1.Secret
	if err := s.typed.Get(ctx, kube.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: cloudUpstream}, &secret); err != nil {
		return err
	}
	secret.Data[snapshot.NotificationsKey] = []byte(s.cloud.NotificationsURL)
	requests := s.requests.Load()
	if err := s.typed.Update(ctx, &secret); err != nil {
		return err
	}
	// The source begins anew with a list.
	if err := s.Await(ctx, "the source to begin anew", func(context.Context) error {
		if n := s.requests.Load() - requests; n < 20 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := pauseFor(ctx, 5*time.Second); err != nil {
		return err
	}
	s.result.Notified, err = s.members(ctx)
	return err
}

// rest counts requests while nothing changes.
func (s *cloudSite) rest(ctx context.Context) error {
	s.progress("openstack: at rest for %s", s.o.Rest)
	if err := pauseFor(ctx, 10*time.Second); err != nil { // what the last change has caused
		return err
	}
	before, began := s.requests.Load(), s.Now()
	if err := pauseFor(ctx, s.o.Rest); err != nil {
		return err
	}
	s.result.Requests = float64(s.requests.Load()-before) / s.Now().Sub(began).Minutes()
	return nil
}

// deleted deletes load balancers.
func (s *cloudSite) deleted(ctx context.Context) error {
	n := min(cloudDeleted, len(s.seeded))
	s.progress("openstack: delete %d load balancers", n)
	gone := make([]time.Duration, n)
	if err := inParallel(ctx, n, n, func(ctx context.Context, i int) error {
		if err := pauseFor(ctx, time.Duration(i)*7*time.Second); err != nil {
			return err
		}
		if err := loadbalancers.Delete(ctx, s.client, s.seeded[i], loadbalancers.DeleteOpts{Cascade: true}).ExtractErr(); err != nil {
			return err
		}
		at := s.Now()
		return s.Await(ctx, "a Service to be gone", func(ctx context.Context) error {
			var service corev1.Service
			err := s.typed.Get(ctx, kube.ObjectKey{Namespace: cloudNamespace, Name: cloudUpstream + "-" + s.seeded[i]}, &service)
			gone[i] = s.Now().Sub(at)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it exists"), err)
		})
	}); err != nil {
		return err
	}
	s.result.Deleted = delayOf(gone)
	return nil
}

package openstack

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/l7policies"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"

	"fairlead.dev/internal/source/cloud"
	lab "fairlead.dev/lab/openstack"
)

// patience bounds the wait for a change, on a busy machine too.
const patience = time.Minute

// tenant changes load balancers of one project as its users do.
type tenant struct {
	t       *testing.T
	client  *gophercloud.ServiceClient
	project string
	sink    *sink
}

// eventually waits until all services are as wanted, one a line.
func (c *tenant) eventually(what string, want ...string) {
	c.t.Helper()
	began := time.Now()
	for c.sink.texts() != strings.Join(want, "\n") {
		if time.Since(began) > patience {
			contact, _, _ := c.sink.state()
			c.t.Fatalf("%s: got\n%s\nwant\n%s\n(%s)", what, c.sink.texts(), strings.Join(want, "\n"), contact)
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
}

// do repeats a change that is refused while an earlier one goes on (409).
func (c *tenant) do(what string, change func(ctx context.Context) error) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := change(c.t.Context())
		if err == nil {
			return
		}
		var status gophercloud.ErrUnexpectedResponseCode
		busy := errors.As(err, &status) && (status.Actual == 409 || strings.Contains(string(status.Body), "database is locked")) // by SQLite
		if !busy || time.Since(began) > patience {
			c.t.Fatalf("%s: %v", what, err)
		}
	}
}

// run runs a source of a real or simulated cloud until the test ends.
func run(t *testing.T, clouds string, change func(*Config)) *sink {
	t.Helper()
	credentials, err := ParseClouds([]byte(clouds), "")
	if err != nil {
		t.Fatal(err)
	}
	s := newSink()
	cfg := Config{Name: "up01", Credentials: credentials, Sink: s, Log: testLog, Allow: cloud.Allow{PlainHTTP: true, Loopback: true}}
	if change != nil {
		change(&cfg)
	}
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		source.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// The simulated cloud and the real one are one contract: what the source does at the one, it
// does at the other.
func TestSimulatedCloud(t *testing.T) {
	sim := lab.NewSimulated()
	sim.ChangeTime = 300 * time.Millisecond
	server := httptest.NewServer(sim)
	defer server.Close()
	project := sim.Project("team01")
	clouds := strings.ReplaceAll(adminCloud, "http://cloud.example", server.URL)
	provider, err := clients.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: server.URL + "/identity/v3", Username: "admin", Password: "secret", DomainName: "Default", TenantName: "admin",
	})
	if err != nil {
		t.Fatal(err)
	}
	contract(t, provider, project, run(t, clouds, nil))
}

// realCloud is a real cloud with the project team01.
func realCloud(t *testing.T, cfg lab.Config) (*lab.Cloud, *gophercloud.ProviderClient, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts a real cloud")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cfg.Dir = t.TempDir()
	c, err := lab.Start(ctx, cfg)
	if errors.Is(err, lab.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	provider, err := c.Provider(ctx, "admin", lab.Password, "admin")
	if err != nil {
		t.Fatal(err)
	}
	return c, provider, createProject(t, provider, "team01")
}

func identityOf(t *testing.T, provider *gophercloud.ProviderClient) *gophercloud.ServiceClient {
	t.Helper()
	identity, err := clients.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

func createProject(t *testing.T, provider *gophercloud.ProviderClient, name string) string {
	t.Helper()
	p, err := projects.Create(t.Context(), identityOf(t, provider), projects.CreateOpts{Name: name, DomainID: "default"}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	return p.ID
}

// A real keystone and a real octavia.
func TestRealCloud(t *testing.T) {
	c, provider, project := realCloud(t, lab.Config{Notifications: true, PageLimit: 100})
	t.Run("polls", func(t *testing.T) {
		contract(t, provider, project, run(t, string(c.CloudsYAML()), func(cfg *Config) {
			cfg.Notifications = "amqp://guest:guest@127.0.0.1:1/" // a broker that is away changes nothing
		}))
	})
	t.Run("notifications", func(t *testing.T) {
		events := make(chan struct{}, 1)
		s := run(t, string(c.CloudsYAML()), func(cfg *Config) {
			cfg.Notifications, cfg.PollInterval, cfg.SweepInterval = c.NotificationsURL, time.Hour, time.Hour
			cfg.Authorities = c.Authorities
			cfg.Log = slog.New(tell{"listening to notifications", events})
		})
		await(t, "notifications", events)
		contract(t, provider, project, s)
	})
	t.Run("broker", func(t *testing.T) { refusedBrokers(t, c) })
	t.Run("lost broker", func(t *testing.T) { lostBroker(t, c, provider, project) })
	t.Run("seeded", func(t *testing.T) { seeded(t, c, project) })
	t.Run("users", func(t *testing.T) { ordinaryUsers(t, c, provider) })
}

// refusedBrokers are brokers that are not verified, or refuse us.
func refusedBrokers(t *testing.T, c *lab.Cloud) {
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(c.Authorities)
	for _, b := range []struct {
		name, url string
		roots     *x509.CertPool
		want      string
	}{
		{"another authority", c.NotificationsURL, x509.NewCertPool(), "tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		{"another host", strings.Replace(c.NotificationsURL, "127.0.0.1", "localhost", 1), authorities, "tls: failed to verify certificate: x509: certificate is not valid for any names, but wanted to match localhost"},
		{"another password", strings.Replace(c.NotificationsURL, ":guest@", ":x@", 1), authorities, `Exception (403) Reason: "username or password not allowed"`},
		{"no broker", "amqps://127.0.0.1:1/", authorities, "dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(b.name, func(t *testing.T) {
			broker, err := newBroker(b.url, "", &tls.Config{RootCAs: b.roots}, cloud.Allow{Loopback: true})
			if err != nil {
				t.Fatal(err)
			}
			joined, err := broker.session(t.Context(), testLog, func() {})
			if joined || err == nil || err.Error() != b.want {
				t.Errorf("got %v, %t\nwant %s", err, joined, b.want)
			}
		})
	}
}

// lostBroker has the broker die while its notifications are listened to, and come back. Changes are found by polling. Octavia
// itself makes none while its broker is away.
func lostBroker(t *testing.T, c *lab.Cloud, provider *gophercloud.ProviderClient, project string) {
	joined, lost, back := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)
	s := run(t, string(c.CloudsYAML()), func(cfg *Config) {
		cfg.Notifications, cfg.Authorities = c.NotificationsURL, c.Authorities
		cfg.Log = slog.New(slog.NewMultiHandler(
			tell{"listening to notifications", joined}, tell{"no notifications; changes are found by polling", lost},
			tell{"the broker has no exchange with notifications yet", back}, // it forgets those that are not durable
		))
	})
	await(t, "notifications", joined)
	c.StopRabbit()
	await(t, "the loss", lost)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.StartRabbit(ctx); err != nil {
		t.Fatal(err)
	}
	await(t, "the return", back)
	contract(t, provider, project, s)
}

func await(t *testing.T, what string, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(patience):
		t.Fatal("no sign of " + what)
	}
}

// tell is a log that tells of a line.
type tell struct {
	line string
	seen chan struct{}
}

func (l tell) Enabled(context.Context, slog.Level) bool { return true }

func (l tell) Handle(_ context.Context, r slog.Record) error {
	if r.Message == l.line {
		signal(l.seen)
	}
	return nil
}

func (l tell) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l tell) WithGroup(string) slog.Handler { return l }

// contract changes load balancers in every way and waits until each change arrives.
func contract(t *testing.T, provider *gophercloud.ProviderClient, project string, s *sink) {
	client, err := clients.NewLoadBalancerV2(provider, gophercloud.EndpointOpts{Region: "RegionOne"})
	if err != nil {
		t.Fatal(err)
	}
	c := &tenant{t: t, client: client, project: project, sink: s}
	weight := 3
	var lb *loadbalancers.LoadBalancer
	c.do("create", func(ctx context.Context) (err error) {
		lb, err = loadbalancers.Create(ctx, client, loadbalancers.CreateOpts{
			Name: "web", ProjectID: project, VipSubnetID: "11111111-1111-1111-1111-111111111111", Tags: []string{"team=shop"},
			Listeners: []listeners.CreateOpts{{Name: "http", Protocol: "HTTP", ProtocolPort: 80, DefaultPool: &pools.CreateOpts{
				Name: "green", Protocol: "HTTP", LBMethod: "ROUND_ROBIN",
				Members: []pools.CreateMemberOpts{{Address: "10.0.0.1", ProtocolPort: 8080, Weight: &weight}, {Address: "2001:db8::1", ProtocolPort: 8080}},
			}}},
		}).Extract()
		return err
	})
	c.eventually("created", "team01 web port-80/TCP=10.0.0.1:8080*3 [2001:db8::1]:8080")
	if labels := s.get(lb.ID).Labels; labels["team"] != "shop" || labels[labelID] != lb.ID {
		t.Errorf("labels %v", labels)
	}
	listener, pool := c.first(lb.ID)

	var member *pools.Member
	c.do("add a member", func(ctx context.Context) (err error) {
		member, err = pools.CreateMember(ctx, client, pool, pools.CreateMemberOpts{Address: "10.0.0.2", ProtocolPort: 8080}).Extract()
		return err
	})
	c.eventually("member added", "team01 web port-80/TCP=10.0.0.1:8080*3 10.0.0.2:8080 [2001:db8::1]:8080")
	update := func(what string, opts pools.UpdateMemberOpts, want string) {
		t.Helper()
		c.do(what, func(ctx context.Context) error {
			_, err := pools.UpdateMember(ctx, client, pool, member.ID, opts).Extract()
			return err
		})
		c.eventually(what, "team01 web port-80/TCP=10.0.0.1:8080*3 "+want+" [2001:db8::1]:8080")
	}
	seven, zero, yes, no := 7, 0, true, false
	update("weight 7", pools.UpdateMemberOpts{Weight: &seven}, "10.0.0.2:8080*7")
	update("weight 0", pools.UpdateMemberOpts{Weight: &zero}, "10.0.0.2:8080(draining)")
	update("backup", pools.UpdateMemberOpts{Weight: &seven, Backup: &yes}, "10.0.0.2:8080*7(backup)")
	update("member down", pools.UpdateMemberOpts{AdminStateUp: &no}, "10.0.0.2:8080*7(down)(backup)")
	c.do("delete the member", func(ctx context.Context) error {
		return pools.DeleteMember(ctx, client, pool, member.ID).ExtractErr()
	})
	c.eventually("member deleted", "team01 web port-80/TCP=10.0.0.1:8080*3 [2001:db8::1]:8080")

	var blue *pools.Pool
	c.do("create a pool", func(ctx context.Context) (err error) {
		blue, err = pools.Create(ctx, client, pools.CreateOpts{LoadbalancerID: lb.ID, Name: "blue", Protocol: "HTTP", LBMethod: "ROUND_ROBIN"}).Extract()
		return err
	})
	c.do("give it a member", func(ctx context.Context) error {
		_, err := pools.CreateMember(ctx, client, blue.ID, pools.CreateMemberOpts{Address: "10.1.0.1", ProtocolPort: 80}).Extract()
		return err
	})
	c.do("create a policy", func(ctx context.Context) error {
		_, err := l7policies.Create(ctx, client, l7policies.CreateOpts{ListenerID: listener, Action: l7policies.ActionRedirectToPool, RedirectPoolID: blue.ID}).Extract()
		return err
	})
	c.eventually("pool of a policy", "team01 web pool port-80/TCP=10.1.0.1:80", "team01 web port-80/TCP=10.0.0.1:8080*3 [2001:db8::1]:8080")

	c.do("a listener", func(ctx context.Context) error {
		_, err := listeners.Create(ctx, client, listeners.CreateOpts{LoadbalancerID: lb.ID, Protocol: "HTTP", ProtocolPort: 81, DefaultPoolID: blue.ID}).Extract()
		return err
	})
	c.eventually("listener", "team01 web port-80/TCP=10.0.0.1:8080*3 [2001:db8::1]:8080; port-81/TCP=10.1.0.1:80")
	c.do("load balancer down", func(ctx context.Context) error {
		_, err := loadbalancers.Update(ctx, client, lb.ID, loadbalancers.UpdateOpts{AdminStateUp: &no}).Extract()
		return err
	})
	c.eventually("load balancer down", "team01 web port-80/TCP=10.0.0.1:8080*3(down) [2001:db8::1]:8080(down); port-81/TCP=10.1.0.1:80(down)")
	c.do("delete the load balancer", func(ctx context.Context) error {
		return loadbalancers.Delete(ctx, client, lb.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr()
	})
	c.eventually("load balancer deleted", "")
	// Octavia is not ready yet, and with SQLite it fails when it is asked for more meanwhile.
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := loadbalancers.Get(t.Context(), client, lb.ID).Extract()
		if gophercloud.ResponseCodeIs(err, 404) {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("the load balancer is still there: %v", err)
		}
	}
}

// first are the IDs of a load balancer's only listener and pool.
func (c *tenant) first(lb string) (listener, pool string) {
	c.t.Helper()
	pages, err := listeners.List(c.client, listeners.ListOpts{LoadbalancerID: lb}).AllPages(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	all, err := listeners.ExtractListeners(pages)
	if err != nil || len(all) != 1 {
		c.t.Fatalf("%v, %v", all, err)
	}
	return all[0].ID, all[0].DefaultPoolID
}

// seeded reads several pages of a real cloud.
func seeded(t *testing.T, c *lab.Cloud, project string) {
	const balancers, members = 150, 2
	if _, err := c.Seed(t.Context(), balancers, members, project); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s := run(t, string(c.CloudsYAML()), func(cfg *Config) { cfg.RequestsPerSecond = 1000 })
	for {
		_, replaced, _ := s.state()
		if replaced > 0 {
			break
		}
		if time.Since(began) > 5*patience {
			contact, _, puts := s.state()
			t.Fatalf("no complete list: %s, %d services", contact, puts)
		}
		time.Sleep(10 * time.Millisecond)
	}
	endpoints, services := 0, s.all()
	for _, service := range services {
		endpoints += service.Endpoints()
	}
	if len(services) != balancers || endpoints != balancers*members {
		t.Errorf("%d services with %d endpoints", len(services), endpoints)
	}
	t.Logf("%d load balancers in %s", balancers, time.Since(began))
}

// ordinaryUsers are a user who is a member of two projects, and an application credential.
func ordinaryUsers(t *testing.T, c *lab.Cloud, admin *gophercloud.ProviderClient) {
	identity := identityOf(t, admin)
	role, err := roles.Create(t.Context(), identity, roles.CreateOpts{Name: "load-balancer_member"}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	user, err := users.Create(t.Context(), identity, users.CreateOpts{Name: "user", Password: "pass", DomainID: "default"}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range []string{"team11", "team12", "team13"} {
		project := createProject(t, admin, name)
		all = append(all, project)
		if name == "team13" {
			continue
		}
		if err := roles.Assign(t.Context(), identity, role.ID, roles.AssignOpts{UserID: user.ID, ProjectID: project}).ExtractErr(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Seed(t.Context(), 1, 1, all...); err != nil {
		t.Fatal(err)
	}
	provider, err := c.Provider(t.Context(), "user", "pass", "team12")
	if err != nil {
		t.Fatal(err)
	}
	application, err := applicationcredentials.Create(t.Context(), identityOf(t, provider), user.ID, applicationcredentials.CreateOpts{Name: "fairlead"}).Extract()
	if err != nil {
		t.Fatal(err)
	}
	for _, credentials := range []struct{ name, clouds, projects string }{
		{"user", fmt.Sprintf("clouds: {c: {auth: {auth_url: '%s', username: user, password: pass, user_domain_name: Default, project_name: team11}}}", c.AuthURL), "team11 team12"},
		{"application credential", fmt.Sprintf("clouds: {c: {auth: {auth_url: '%s', application_credential_id: %s, application_credential_secret: %s}}}", c.AuthURL, application.ID, application.Secret), "team12"},
		{"its name", fmt.Sprintf("clouds: {c: {auth: {auth_url: '%s', application_credential_name: fairlead, application_credential_secret: %s, username: user, user_domain_id: default}}}", c.AuthURL, application.Secret), "team12"},
	} {
		t.Run(credentials.name, func(t *testing.T) {
			s := run(t, credentials.clouds, nil)
			began := time.Now()
			var got []string
			for {
				_, replaced, _ := s.state()
				got = got[:0]
				for _, line := range strings.Split(s.texts(), "\n") {
					project, _, _ := strings.Cut(line, " ")
					got = append(got, project)
				}
				if replaced > 0 || time.Since(began) > patience {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if contact, _, _ := s.state(); strings.Join(got, " ") != credentials.projects || contact != "ok" {
				t.Errorf("got %v, want %s (%s)", got, credentials.projects, contact)
			}
		})
	}
}

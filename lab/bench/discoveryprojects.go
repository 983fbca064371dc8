package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/lab/openstack"
)

// projects measures one complete reading of a cloud with many projects.
func (s *cloudSite) projects(ctx context.Context) (*DiscoveryProjects, error) {
	n := s.o.Projects
	s.progress("openstack: a simulated cloud with %d projects", n)
	cloud := openstack.NewSimulated()
	cloud.Latency = simulatedLatency
	cloud.Now = func() time.Time { return s.Now().Add(-time.Hour) } // what changed just now is read twice
	r := &DiscoveryProjects{Projects: n, Latency: millis(simulatedLatency), Allowed: simulatedRequests}
	if err := inParallel(ctx, 8, n, func(ctx context.Context, i int) error {
		name := fmt.Sprintf("project-%d", i)
		cloud.Seed(name, 1, 2)
		return s.typed.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}); err != nil {
		return nil, err
	}
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), simulatedPort).String()
	if err := s.listen(ctx, address, cloud); err != nil {
		return nil, err
	}
	cloud.Now = nil
	s.progress("openstack: %d projects, read by the plane", n)
	began := s.Now()
	if err := s.createCloud(ctx, "large", fmt.Appendf(nil,
		"clouds: {lab: {region_name: RegionOne, auth: {auth_url: 'http://%s/identity/v3', username: admin, password: secret, project_name: admin, user_domain_name: Default, project_domain_name: Default}}}\n", address,
	), simulatedRequests); err != nil {
		return nil, err
	}
	if err := s.awaitUpstream(ctx, "large", n); err != nil {
		return nil, err
	}
	r.Swept = seconds(s.Now().Sub(began))
	for _, count := range cloud.Requests() {
		r.Requests += count
	}
	r.GimbalProjects = min(n, gimbalProjects)
	s.progress("openstack: %d of them in Gimbal's way", r.GimbalProjects)
	var err error
	began = s.Now()
	if r.GimbalRequests, err = s.gimbal(ctx, address, r.GimbalProjects); err != nil {
		return nil, err
	}
	share := float64(n) / float64(max(1, r.GimbalProjects))
	r.Gimbal, r.GimbalRequests = seconds(time.Duration(float64(s.Now().Sub(began))*share)), int(float64(r.GimbalRequests)*share)
	return r, nil
}

// gimbal reads projects as Gimbal does, one after the other.
func (s *cloudSite) gimbal(ctx context.Context, address string, n int) (requests int, err error) {
	provider, err := clients.NewClient("http://" + address + "/identity/v3")
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{DialContext: s.machine.Dial}
	defer transport.CloseIdleConnections()
	provider.HTTPClient = http.Client{Transport: transport}
	if err := clients.Authenticate(ctx, provider, gophercloud.AuthOptions{
		IdentityEndpoint: provider.IdentityEndpoint, Username: "admin", Password: "secret", DomainName: "Default", TenantName: "admin",
	}); err != nil {
		return 0, err
	}
	walked, err := openstack.Walk(ctx, provider, n)
	return walked.Requests, err
}

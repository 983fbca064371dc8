package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

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

// gimbal reads projects as Gimbal does: one after the other, its load balancers, its listeners, its pools, and the members of
// each pool (cmd/openstack-discoverer of Gimbal 0.5).
func (s *cloudSite) gimbal(ctx context.Context, address string, n int) (requests int, err error) {
	c := &http.Client{Transport: &http.Transport{DialContext: s.machine.Dial}}
	defer c.CloseIdleConnections()
	var token string
	ask := func(method, path, body string, to any) error {
		request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("X-Auth-Token", token)
		answer, err := c.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		requests++
		if answer.StatusCode >= 300 {
			return fmt.Errorf("%s: %s", path, answer.Status)
		}
		if t := answer.Header.Get("X-Subject-Token"); t != "" {
			token = t
		}
		return json.NewDecoder(answer.Body).Decode(to)
	}
	var ignored map[string]any
	if err := ask(http.MethodPost, "/identity/v3/auth/tokens",
		`{"auth":{"identity":{"password":{"user":{"name":"admin","password":"secret"}}},"scope":{"project":{"name":"admin"}}}}`, &ignored); err != nil {
		return requests, err
	}
	var all struct{ Projects []struct{ ID, Name string } }
	if err := ask(http.MethodGet, "/identity/v3/projects", "", &all); err != nil {
		return requests, err
	}
	read := 0
	for _, p := range all.Projects {
		if !strings.HasPrefix(p.Name, "project-") {
			continue
		}
		if read++; read > n {
			break
		}
		var has struct{ Pools []struct{ ID string } }
		for _, list := range []string{"loadbalancers", "listeners", "pools"} {
			if err := ask(http.MethodGet, "/load-balancer/v2.0/lbaas/"+list+"?project_id="+p.ID, "", &has); err != nil {
				return requests, err
			}
		}
		for _, pool := range has.Pools {
			if err := ask(http.MethodGet, "/load-balancer/v2.0/lbaas/pools/"+pool.ID+"/members", "", &ignored); err != nil {
				return requests, err
			}
		}
	}
	return requests, nil
}

package openstack

import (
	"context"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/pagination"
)

// Walked is what a walk cost, and saw.
type Walked struct {
	Projects, LoadBalancers, Members, Requests int
	Took                                       time.Duration
}

// Walk reads a cloud as Gimbal's discoverer did: every project in turn, its load balancers,
// its listeners, its pools, and the members of each pool, one request after the other. It is
// what benchmarks compare with. A limit above 0 ends it after so many projects.
func Walk(ctx context.Context, provider *gophercloud.ProviderClient, limit int) (Walked, error) {
	var w Walked
	began := time.Now()
	identity, err := clients.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return w, err
	}
	client, err := clients.NewLoadBalancerV2(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return w, err
	}
	pages := func(pager pagination.Pager, each func(pagination.Page) error) error {
		return pager.EachPage(ctx, func(_ context.Context, p pagination.Page) (bool, error) {
			w.Requests++
			return true, each(p)
		})
	}
	nothing := func(pagination.Page) error { return nil }
	page, err := projects.List(identity, nil).AllPages(ctx)
	if err != nil {
		return w, err
	}
	w.Requests++
	all, err := projects.ExtractProjects(page)
	if err != nil {
		return w, err
	}
	for _, project := range all {
		if limit > 0 && w.Projects == limit {
			break
		}
		w.Projects++
		if err := pages(loadbalancers.List(client, loadbalancers.ListOpts{ProjectID: project.ID}), func(p pagination.Page) error {
			found, err := loadbalancers.ExtractLoadBalancers(p)
			w.LoadBalancers += len(found)
			return err
		}); err != nil {
			return w, err
		}
		if err := pages(listeners.List(client, listeners.ListOpts{ProjectID: project.ID}), nothing); err != nil {
			return w, err
		}
		var ids []string
		if err := pages(pools.List(client, pools.ListOpts{ProjectID: project.ID}), func(p pagination.Page) error {
			found, err := pools.ExtractPools(p)
			for _, pool := range found {
				ids = append(ids, pool.ID)
			}
			return err
		}); err != nil {
			return w, err
		}
		for _, id := range ids {
			if err := pages(pools.ListMembers(client, id, nil), func(p pagination.Page) error {
				found, err := pools.ExtractMembers(p)
				w.Members += len(found)
				return err
			}); err != nil {
				return w, err
			}
		}
	}
	w.Took = time.Since(began)
	return w, nil
}

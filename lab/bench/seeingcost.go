package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Listeners of requestCost: two without loggers, and one as it is.
const (
	costPlain   model.ListenerID = "http-81"
	costPlain2  model.ListenerID = "http-82"
	costCounted                  = scopesListener
)

func withoutLoggers(m *hcmv3.HttpConnectionManager) { m.AccessLog = nil }

func withoutStatistics(b *bootstrapv3.Bootstrap) {
	b.StatsConfig = &metricsv3.StatsConfig{StatsMatcher: &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_RejectAll{RejectAll: true}}}
}

// requestCost compares listeners of one Envoy, in turns: without taps, and while more and more requests are recorded.
func requestCost(ctx context.Context, o SeeingOptions) (c SeeingCost, err error) {
	s, err := newScopesBench(ctx)
	if err != nil {
		return c, err
	}
	defer s.close()
	stop, err := s.serve(ctx, &EdgeRow{Routes: 100, Endpoints: 2})
	if err != nil {
		return c, err
	}
	defer stop()
	for _, id := range []model.ListenerID{costPlain, costPlain2} {
		// The routes of this listener are those of the other one.
		if err := s.listen(ctx, id, withoutLoggers); err != nil {
			return c, err
		}
	}
	order := []model.ListenerID{costPlain, costCounted, costPlain2}
	compare := func() (plain, counted, again float64, err error) {
		sums := map[model.ListenerID]float64{}
		for round := range o.Rounds {
			for i := range order {
				id := order[(i+round)%len(order)]
				us, err := s.askMany(id, o.Requests)
				if err != nil {
					return 0, 0, 0, err
				}
				sums[id] += us / float64(o.Rounds)
			}
		}
		return sums[costPlain], sums[costCounted], sums[costPlain2], nil
	}
	first, counted, again, err := compare()
	if err != nil {
		return c, err
	}
	c.Plain, c.Counted = (first+again)/2, counted
	c.Ratio, c.Noise = toThird(c.Counted/c.Plain), toThird(again/first)
	for percent, ratio := range map[int]*float64{100: &c.TappedRatio, 25: &c.TappedShare} {
		s.ads.Samples.Set(map[string]any{model.TapKey: percent})
		first, counted, again, err := compare()
		if err != nil {
			return c, err
		}
		*ratio = toThird(counted / ((first + again) / 2))
	}
	return c, nil
}

// askMany returns Envoy's processor time for a request of a listener, in microseconds.
func (s *scopesBench) askMany(id model.ListenerID, n int) (float64, error) {
	c, err := dialBench(s.port[id])
	if err != nil {
		return 0, err
	}
	defer c.conn.Close()
	before, err := s.envoy.CPU()
	if err != nil {
		return 0, err
	}
	for i := range n {
		host := s.hosts[i%len(s.hosts)]
		status, _, err := c.get(host, "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("it is answered %d", status)
		}
		if err != nil {
			return 0, fmt.Errorf("ask %s at %s: %w", host, id, err)
		}
	}
	after, err := s.envoy.CPU()
	return float64((after - before).Nanoseconds()) / 1000 / float64(n), err
}

// memory compares two Envoys with the same routes, each with a cluster of its own, when each was asked.
func (c *SeeingCost) memory(ctx context.Context, o SeeingOptions) (err error) {
	if c.PlainRSS, err = routesMemory(ctx, o, c.Routes, withoutLoggers, withoutStatistics); err != nil {
		return err
	}
	if c.CountedRSS, err = routesMemory(ctx, o, c.Routes, nil); err != nil {
		return err
	}
	c.RSSRatio = toThird(c.CountedRSS / c.PlainRSS)
	return nil
}

func routesMemory(
	ctx context.Context, o SeeingOptions, n int, listener func(*hcmv3.HttpConnectionManager), bootstrap ...func(*bootstrapv3.Bootstrap),
) (float64, error) {
	s, err := newScopesBench(ctx, bootstrap...)
	if err != nil {
		return 0, err
	}
	defer s.close()
	port, stop, err := serveOK(ctx, false) // there may be fewer descriptors than clusters
	if err != nil {
		return 0, err
	}
	defer stop()
	for i := range n {
		namespace, app := "team-"+strconv.Itoa(i%o.Namespaces), appName(i)
		g := model.BackendGroup{ID: model.GroupID(namespace + "/" + app + "/80"), Set: model.SetID(namespace + "/" + app + "/80")}
		set := model.BackendSet{ID: g.Set}
		for e := range o.Endpoints {
			set.Backends = append(set.Backends, model.Backend{Address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, 0, byte(e + 1)}), port)}) //nolint:gosec // few
		}
		if err := s.ads.Set(xds.Cluster(g), xds.LoadAssignment(g, set, nil)); err != nil {
			return 0, err
		}
		host, owner := seenHost(i), model.Object{Kind: "HTTPRoute", Namespace: namespace, Name: routeName(i)}
		s.hosts = append(s.hosts, host)
		s.shards[benchShard(host)] = append(s.shards[benchShard(host)], model.VirtualHost{
			HostKey: model.HostKey{Listener: scopesListener, Host: host},
			Routes: []model.Route{{
				Name: "HTTPRoute/" + namespace + "/" + owner.Name + "/rules/0/matches/0", Owner: owner,
				Match:   model.Match{Path: model.PathMatch{Kind: model.PathSegments, Value: "/"}},
				Forward: &model.Forward{Backends: []model.WeightedGroup{{Group: g.ID, Weight: 1}}},
			}},
		})
	}
	if err := s.listen(ctx, scopesListener, listener); err != nil {
		return 0, err
	}
	if _, err := s.askMany(scopesListener, n); err != nil {
		return 0, err
	}
	if listener == nil { // whoever scrapes has the statistics put together
		if _, err := s.envoy.Admin(ctx, http.MethodGet, "/stats?usedonly&filter=^none$"); err != nil {
			return 0, err
		}
	}
	return math.Round(float64(s.envoy.RSS())/102.4) / 10, errors.Join(ctx.Err())
}

func toThird(v float64) float64 { return math.Round(v*1000) / 1000 }

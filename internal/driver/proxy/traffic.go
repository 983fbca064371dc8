package proxy

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

const (
	// maxStatistics bounds Envoy's answer, bytes: 20,000 routes and clusters with requests take about 20 MB. It is read line by line.
	maxStatistics = 256 << 20
	// maxLine bounds one of its lines. A histogram has a line with all of its buckets, which are some 1,000 at most.
	maxLine = 64 << 10
)

// What was gathered within gatherGap, by the last question, is new enough: whoever asks each second has times that are a second older.
const gatherGap = 5 * time.Second

// gatherStats has Envoy put together the histograms of its threads, which it does after it has begun to answer. There are only a few text readouts.
const gatherStats = "/stats?type=TextReadouts&usedonly&filter=^none$"

// trafficStats asks for all at once: Envoy looks at each of its statistics for each question, and tries the filter on each that is in
// use. What beginnings decide is decided quickly.
var trafficStats = "/stats?usedonly&histogram_buckets=detailed&filter=" + url.QueryEscape("^("+strings.Join([]string{
	xds.RequestStats + "[.]requests[.]", "cluster[.][^./]*@", "http[.]", "tcp[.]", "listener[.]", "vhost[.].*[.]route[.].*[.]" + xds.StatTime + "$",
}, "|")+")")

// Traffic is what the proxy has counted.
func (s *Supervisor) Traffic(ctx context.Context) (model.Traffic, error) {
	if now := s.config.Now().UnixNano(); now-s.gathered.Swap(now) > int64(gatherGap) {
		if _, err := s.admin.ask(ctx, http.MethodGet, gatherStats); err != nil {
			return model.Traffic{}, err
		}
	}
	body, err := s.admin.open(ctx, trafficStats)
	if err != nil {
		return model.Traffic{}, err
	}
	defer body.Close()
	return readTraffic(io.LimitReader(body, maxStatistics))
}

// counts are those that are read of a statistic with a number as its value.
type counts struct {
	requests  map[model.RequestFigures]*model.RequestFigures // by what has no requests
	services  map[string]*model.ServiceTraffic               // by the name that their clusters share
	listeners map[string]*model.ListenerTraffic
	routes    map[string]*model.RouteTraffic
	hosts     map[string]*model.HostTraffic
}

// clusterStats are the statistics of clusters.
var clusterStats = map[string]func(s *model.ServiceTraffic, n uint64){
	"upstream_rq_5xx":    func(s *model.ServiceTraffic, n uint64) { s.Answers[5] = n },
	"upstream_rq_4xx":    func(s *model.ServiceTraffic, n uint64) { s.Answers[4] = n },
	"upstream_rq_3xx":    func(s *model.ServiceTraffic, n uint64) { s.Answers[3] = n },
	"upstream_rq_2xx":    func(s *model.ServiceTraffic, n uint64) { s.Answers[2] = n },
	"upstream_rq_1xx":    func(s *model.ServiceTraffic, n uint64) { s.Answers[1] = n },
	xds.StatRetries:      func(s *model.ServiceTraffic, n uint64) { s.Retries = n },
	xds.StatResetByOther: func(s *model.ServiceTraffic, n uint64) { s.Resets += n },
	xds.StatResetByUs:    func(s *model.ServiceTraffic, n uint64) { s.Resets += n },
	xds.StatToBackend:    func(s *model.ServiceTraffic, n uint64) { s.Received = n },
	xds.StatFromBackend:  func(s *model.ServiceTraffic, n uint64) { s.Sent = n },
	xds.StatTime:         nil,
}

// listenerStats are those of listeners: connections are of the listener itself, all else of what serves HTTP or TCP there.
var listenerStats = map[string]func(l *model.ListenerTraffic, n uint64){
	xds.StatFromClient:          func(l *model.ListenerTraffic, n uint64) { l.Received += n },
	xds.StatToClient:            func(l *model.ListenerTraffic, n uint64) { l.Sent += n },
	xds.StatClientReset:         func(l *model.ListenerTraffic, n uint64) { l.Resets += n },
	xds.StatResetToClient:       func(l *model.ListenerTraffic, n uint64) { l.Resets += n },
	xds.StatConnectionsOpen:     func(l *model.ListenerTraffic, n uint64) { l.Open += n },
	xds.StatConnectionsAccepted: func(l *model.ListenerTraffic, n uint64) { l.Connections += n },
	xds.StatClientTime:          nil,
}

// readTraffic reads Envoy's answer in text: "name: number" or, of a histogram, "name:" and then lines with its buckets.
func readTraffic(r io.Reader) (model.Traffic, error) {
	c := counts{
		requests: map[model.RequestFigures]*model.RequestFigures{}, services: map[string]*model.ServiceTraffic{},
		listeners: map[string]*model.ListenerTraffic{}, routes: map[string]*model.RouteTraffic{}, hosts: map[string]*model.HostTraffic{},
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	histogram := ""
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if totals, is := strings.CutPrefix(line, "totals="); is && histogram != "" {
			c.takeHistogram(histogram, totals)
			histogram = ""
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		if !utf8.ValidString(name) || len(name) > 4*maxCluster { // names go into reports
			continue
		}
		if h, is := strings.CutSuffix(name, ":"); is && value == "" {
			histogram = h
			continue
		}
		n, err := strconv.ParseUint(value, 10, 64)
		if err == nil {
			c.take(name, line, n)
		}
	}
	if err := lines.Err(); err != nil {
		return model.Traffic{}, fmt.Errorf("read the proxy's statistics: %w", err)
	}
	return c.traffic(), nil
}

func (c *counts) take(name, line string, n uint64) {
	if of, class, n, ok := readRequest(line); ok {
		if c.requests[of] == nil {
			c.requests[of] = new(of)
		}
		c.requests[of].Classes[class] += n
		return
	}
	kind, of, statistic := split(name)
	switch kind {
	case "cluster":
		if set, s := clusterStats[statistic], c.service(of); set != nil && s != nil {
			set(s, n)
		}
	case "http", "tcp", "listener":
		// Those of a listener's threads are in its own, too. Those of the admin listener are our own questions.
		connections := statistic == xds.StatConnectionsOpen || statistic == xds.StatConnectionsAccepted
		if set := listenerStats[statistic]; set != nil && (kind == "listener") == connections && of != "admin" && of != "admin.main_thread" && !strings.Contains(of, ".worker_") {
			set(c.listener(of), n)
		}
	}
}

func (c *counts) takeHistogram(name, totals string) {
	kind, of, statistic := split(name)
	switch {
	case kind == "cluster" && statistic == xds.StatTime:
		if s := c.service(of); s != nil {
			readHistogram(totals, &s.Seconds)
		}
	case kind == "http" && statistic == xds.StatClientTime && of != "admin":
		readHistogram(totals, &c.listener(of).Seconds)
	case kind == "vhost" && statistic == xds.StatTime:
		if host, owner, is := strings.Cut(of, ".route."); is {
			if c.hosts[host] == nil {
				c.hosts[host] = &model.HostTraffic{Host: host}
			}
			readHistogram(totals, &c.hosts[host].Seconds)
			if c.routes[owner] == nil {
				c.routes[owner] = &model.RouteTraffic{Owner: owner}
			}
			readHistogram(totals, &c.routes[owner].Seconds)
		}
	}
}

// split divides the name of a statistic: "cluster.team/app/80.upstream_rq_total".
func split(name string) (kind, of, statistic string) {
	kind, rest, _ := strings.Cut(name, ".")
	dot := strings.LastIndexByte(rest, '.')
	if dot < 0 {
		return "", "", ""
	}
	return kind, rest[:dot], rest[dot+1:]
}

// service is what a cluster's statistics are of; nil: of no Services, such as the agent's own.
func (c *counts) service(name string) *model.ServiceTraffic {
	if c.services[name] == nil {
		namespace, upstream, ok := xds.SharedStat(name)
		if !ok {
			return nil
		}
		c.services[name] = &model.ServiceTraffic{Namespace: namespace, Upstream: upstream}
	}
	return c.services[name]
}

func (c *counts) listener(name string) *model.ListenerTraffic {
	if c.listeners[name] == nil {
		c.listeners[name] = &model.ListenerTraffic{Listener: model.ListenerID(name)}
	}
	return c.listeners[name]
}

// readHistogram reads buckets, "lower,width:count, …", in whole milliseconds: what is below 100 ms has a bucket of its own for each, and all
// else one of two digits. Envoy cuts fractions off, so the middle of a bucket is half a millisecond above its lower limit at least.
func readHistogram(totals string, into *model.Histogram) {
	for bucket := range strings.SplitSeq(totals, ", ") {
		limits, count, _ := strings.Cut(bucket, ":")
		from, size, _ := strings.Cut(limits, ",")
		lower, err := strconv.ParseFloat(from, 64)
		width, e := strconv.ParseFloat(size, 64)
		n, er := strconv.ParseUint(count, 10, 64)
		if err != nil || e != nil || er != nil || !(lower >= 0 && lower < 1e9 && width >= 0 && width < 1e9) {
			continue
		}
		into.Add((lower+max(width, 1)/2)/1000, n)
	}
}

func (c *counts) traffic() model.Traffic {
	t := model.Traffic{}
	for _, r := range c.requests {
		t.Requests = append(t.Requests, *r)
	}
	slices.SortFunc(t.Requests, model.RequestFigures.Compare)
	for _, s := range c.services {
		if s.Received+s.Sent > 0 || s.Answers != [model.StatusClasses]uint64{} {
			t.Services = append(t.Services, *s)
		}
	}
	slices.SortFunc(t.Services, func(a, b model.ServiceTraffic) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Upstream, b.Upstream))
	})
	for _, l := range c.listeners {
		t.Listeners = append(t.Listeners, *l)
	}
	slices.SortFunc(t.Listeners, func(a, b model.ListenerTraffic) int { return cmp.Compare(a.Listener, b.Listener) })
	for _, r := range c.routes {
		t.Routes = append(t.Routes, *r)
	}
	slices.SortFunc(t.Routes, func(a, b model.RouteTraffic) int { return cmp.Compare(a.Owner, b.Owner) })
	for _, h := range c.hosts {
		t.Hosts = append(t.Hosts, *h)
	}
	slices.SortFunc(t.Hosts, func(a, b model.HostTraffic) int { return cmp.Compare(a.Host, b.Host) })
	return t
}

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/traffic"
)

const (
	// mostNamespaces, mostHosts and mostListeners bound the series of requests: 6 each at most.
	mostNamespaces, mostHosts, mostListeners = 1000, 200, 200
	// countTime bounds the time that a scrape waits for the proxy.
	countTime = 3 * time.Second
)

// requestCollector counts the requests that the proxy has answered when it is asked.
type requestCollector struct {
	counter RequestCounter

	namespaces, hosts, listeners *prometheus.Desc

	mu                              sync.Mutex
	byNamespace, byHost, byListener *traffic.Totals
}

func newRequestCollector(counter RequestCounter) *requestCollector {
	of := func(name, help, label string) *prometheus.Desc {
		return prometheus.NewDesc("fairlead_requests_by_"+name+"_total", help, []string{label, "class"}, nil)
	}
	return &requestCollector{
		counter:     counter,
		namespaces:  of("namespace", "Requests by the namespace of their route and the class of the status.", "namespace"),
		hosts:       of("host", "Requests by virtual host and the class of the status.", "host"),
		listeners:   of("listener", "Requests by listener and the class of the status.", "listener"),
		byNamespace: traffic.NewTotals(traffic.Namespaces, mostNamespaces),
		byHost:      traffic.NewTotals(traffic.Hosts, mostHosts),
		byListener:  traffic.NewTotals(traffic.Listeners, mostListeners),
	}
}

// Describe implements prometheus.Collector.
func (c *requestCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.namespaces
	to <- c.hosts
	to <- c.listeners
}

// Collect implements prometheus.Collector. Without an answer of the proxy the totals are those of the last one.
func (c *requestCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	c.mu.Lock() // before the question: an older answer would be taken for another proxy's
	defer c.mu.Unlock()
	figures, err := c.counter.Requests(ctx)
	for desc, totals := range map[*prometheus.Desc]*traffic.Totals{c.namespaces: c.byNamespace, c.hosts: c.byHost, c.listeners: c.byListener} {
		if err == nil {
			totals.Take(figures)
		}
		totals.All(func(name string, class model.StatusClass, n uint64) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), name, class.String())
		})
	}
}

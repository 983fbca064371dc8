package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"fairlead.dev/examples"
	"fairlead.dev/lab/load"
)

// route is one host name of the examples and how its requests are to be split.
type route struct {
	kind, host string
	// file and document of the example that holds the weights.
	file string
	name string
	// services maps each service to its cluster.
	services map[string]string
	weights  map[string]float64 // by cluster
}

const (
	newsOS1    = "os1-6f671e13-1fbd-4c6d-a1db-31a565bb019c"
	newsK8s1   = "k8s1-7877d3b4-a471-4f38-9459-69659a593b38"
	team01K8s1 = "up01-team01-app"
	team01OS1  = "up02-team01-d1b6f7a2-4c52-4f0e-9a53-2f6c0b7f9e11"
)

// demoRoutes are the routes of the examples. The first two are the ones whose
// weights shift.
func demoRoutes() []*route {
	news := map[string]string{newsOS1: "os1", newsK8s1: "k8s1"}
	return []*route{
		{kind: "IngressRoute", host: "news.yahoo.co.jp", file: "news/ingressroute.yaml", name: "news-yahoo-co-jp", services: news, weights: map[string]float64{"os1": 60, "k8s1": 40}},
		{kind: "HTTPRoute", host: "news.example.com", file: "news/gateway.yaml", name: "news", services: news, weights: map[string]float64{"os1": 60, "k8s1": 40}},
		{kind: "IngressRoute", host: "team01-app.example.com", file: "team01/ingressroute.yaml", name: "team01-app", services: map[string]string{team01K8s1: "k8s1", team01OS1: "os1"}, weights: map[string]float64{"k8s1": 75, "os1": 25}},
	}
}

// shares holds a route's answers against its weights: by cluster, and by backend
// since a cluster's backends take turns.
func (r *route) shares(st *stage, answers map[string]int) RouteShares {
	clusters, backends := map[string]int{}, map[string]float64{}
	for name, n := range answers {
		clusters[clusterOf(name)] += n
	}
	size := map[string]float64{}
	for _, b := range st.backends {
		size[b.Cluster]++
	}
	for _, b := range st.backends {
		backends[b.Name] = r.weights[b.Cluster] / size[b.Cluster]
	}
	return RouteShares{
		Route: r.kind, Host: r.host,
		Clusters: load.Split(clusters, r.weights, load.DefaultSigmas),
		Backends: load.Split(answers, backends, load.DefaultSigmas),
	}
}

// manifests returns the examples of routes as they are, in the order of their names, as
// kubectl applies them. That of a network names addresses which are not the lab's.
func manifests() (string, error) {
	news, newsErr := fs.Glob(examples.Files, "news/*.yaml")
	team01, team01Err := fs.Glob(examples.Files, "team01/*.yaml")
	if err := errors.Join(newsErr, team01Err); err != nil {
		return "", err
	}
	var all []string
	for _, f := range slices.Concat(news, team01) {
		raw, err := fs.ReadFile(examples.Files, f)
		if err != nil {
			return "", err
		}
		all = append(all, string(raw))
	}
	return strings.Join(all, "---\n"), nil
}

// endpoints returns the EndpointSlices that discovery would write: the lab's
// backends behind the examples' services.
func (st *stage) endpoints(routes []*route) (string, error) {
	var all []string
	seen := map[string]bool{}
	for _, r := range routes {
		namespace := "news-team"
		if strings.HasPrefix(r.file, "team01/") {
			namespace = "team01"
		}
		for _, service := range slices.Sorted(maps.Keys(r.services)) {
			if seen[service] {
				continue
			}
			seen[service] = true
			raw, err := yaml.Marshal(st.slice(namespace, service, r.services[service]))
			if err != nil {
				return "", fmt.Errorf("write endpoints of %s: %w", service, err)
			}
			all = append(all, string(raw))
		}
	}
	return strings.Join(all, "---\n"), nil
}

func (st *stage) slice(namespace, service, cluster string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: service + "-1", Namespace: namespace,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "lab.fairlead.dev",
				"gimbal.projectcontour.io/backend": cluster,
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	ready := true
	for _, b := range st.backends {
		if b.Cluster != cluster {
			continue
		}
		if b.Address.Addr().Is6() {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		name, port := "port-80", int32(b.Address.Port())
		if cluster == "k8s1" {
			name = "http"
		}
		s.Ports = []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{b.Address.Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return s
}

// reweighted returns the example's document that holds the route's weights, with
// new ones (by cluster).
func (r *route) reweighted(weights map[string]float64) (string, error) {
	raw, err := fs.ReadFile(examples.Files, r.file)
	if err != nil {
		return "", err
	}
	for doc := range strings.SplitSeq(string(raw), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			return "", fmt.Errorf("read example %s: %w", r.file, err)
		}
		meta, _ := object["metadata"].(map[string]any)
		if object["kind"] != r.kind || meta["name"] != r.name {
			continue
		}
		if n := setWeights(object["spec"], r.services, weights); n != len(r.services) {
			return "", fmt.Errorf("example %s names %d services of %d", r.file, n, len(r.services))
		}
		out, err := yaml.Marshal(object)
		return string(out), err
	}
	return "", fmt.Errorf("example %s has no %s %s", r.file, r.kind, r.name)
}

// setWeights sets the weight of every reference to a service below v and returns
// how many there were.
func setWeights(v any, services map[string]string, weights map[string]float64) int {
	n := 0
	switch v := v.(type) {
	case map[string]any:
		if name, ok := v["name"].(string); ok {
			if cluster, ok := services[name]; ok {
				v["weight"] = weights[cluster]
				return 1
			}
		}
		for _, child := range v {
			n += setWeights(child, services, weights)
		}
	case []any:
		for _, child := range v {
			n += setWeights(child, services, weights)
		}
	}
	return n
}

// condition is nil if the object has the condition with status True.
func (st *stage) condition(ctx context.Context, namespace, object, condition string) error {
	out, err := st.plane.Kubectl(ctx, "", "-n", namespace, "get", object, "-o", "json")
	if err != nil {
		return err
	}
	var o struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
			Parents    []struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"parents"`
			CurrentStatus string `json:"currentStatus"`
			Description   string `json:"description"`
		} `json:"status"`
	}
	if err := json.Unmarshal(out, &o); err != nil {
		return fmt.Errorf("read %s: %w", object, err)
	}
	if condition == "valid" {
		if o.Status.CurrentStatus == "valid" {
			return nil
		}
		return fmt.Errorf("%s is %q: %s", object, o.Status.CurrentStatus, o.Status.Description)
	}
	conditions := o.Status.Conditions
	for _, p := range o.Status.Parents {
		conditions = append(conditions, p.Conditions...)
	}
	for _, c := range conditions {
		if c.Type == condition && c.Status == metav1.ConditionTrue {
			return nil
		}
		if c.Type == condition {
			return fmt.Errorf("%s: %s is %s (%s): %s", object, condition, c.Status, c.Reason, c.Message)
		}
	}
	return fmt.Errorf("%s has no condition %s yet", object, condition)
}

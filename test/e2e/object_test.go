package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "fairlead.dev/internal/console/v1"
)

// object is what tests read of a resource, as `kubectl get -o yaml` shows it.
type object struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		CurrentStatus string             `json:"currentStatus"`
		Description   string             `json:"description"`
		Conditions    []metav1.Condition `json:"conditions"`
		Addresses     []json.RawMessage  `json:"addresses"` // of a Gateway and of a Machine differ
		Parents       []struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"parents"`
		Ancestors []struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"ancestors"`
		Listeners []struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"listeners"`
	} `json:"status"`
}

var kinds = map[string]schema.GroupVersionResource{
	"HTTPRoute":     {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	"GRPCRoute":     {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
	"TLSRoute":      {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "tlsroutes"},
	"TCPRoute":      {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "tcproutes"},
	"Gateway":       {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"},
	"GatewayClass":  {Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"},
	"IngressRoute":  {Group: "contour.heptio.com", Version: "v1beta1", Resource: "ingressroutes"},
	"Machine":       {Group: "fairlead.dev", Version: "v1alpha1", Resource: "machines"},
	"AddressPool":   {Group: "fairlead.dev", Version: "v1alpha1", Resource: "addresspools"},
	"BGPPeer":       {Group: "fairlead.dev", Version: "v1alpha1", Resource: "bgppeers"},
	"ClientPolicy":  {Group: "fairlead.dev", Version: "v1alpha1", Resource: "clientpolicies"},
	"RoutePolicy":   {Group: "fairlead.dev", Version: "v1alpha1", Resource: "routepolicies"},
	"BackendPolicy": {Group: "fairlead.dev", Version: "v1alpha1", Resource: "backendpolicies"},
	"Service":       {Version: "v1", Resource: "services"},
}

// ref names a resource: "HTTPRoute namespace/name", or "Machine name".
type ref string

func (s *site) get(ctx context.Context, r ref) (object, error) {
	var o object
	kind, name, _ := strings.Cut(string(r), " ")
	gvr, known := kinds[kind]
	if !known {
		return o, fmt.Errorf("%s: no kind of these tests", r)
	}
	namespace, inside, namespaced := strings.Cut(name, "/")
	if !namespaced {
		namespace, inside = "", name
	}
	u, err := s.api.Resource(gvr).Namespace(namespace).Get(ctx, inside, metav1.GetOptions{})
	if err != nil {
		return o, err
	}
	raw, err := u.MarshalJSON()
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(raw, &o)
}

// matches compares a text with a pattern in which "…" stands for any text.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "…")
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for i, p := range parts[1:] {
		if i == len(parts)-2 {
			return strings.HasSuffix(rest, p)
		}
		if _, rest, ok = strings.Cut(rest, p); !ok {
			return false
		}
	}
	return rest == ""
}

// condition is one that tests wait for; in the message "…" stands for any text.
type condition struct{ kind, status, reason, message string }

func (c condition) String() string {
	return fmt.Sprintf("%s=%s %s: %s", c.kind, c.status, c.reason, c.message)
}

// awaitConditions waits until the resource, or one of its parents, has all of them. Those
// of a Gateway's listener have "listener " before their type.
func (s *site) awaitConditions(t *testing.T, r ref, want ...condition) {
	t.Helper()
	for _, w := range want {
		s.await(t, fmt.Sprintf("%s to have %s", r, w), func(ctx context.Context) error {
			o, err := s.get(ctx, r)
			if err != nil {
				return err
			}
			conditions := o.Status.Conditions
			for _, p := range o.Status.Parents {
				conditions = append(conditions, p.Conditions...)
			}
			for _, a := range o.Status.Ancestors {
				conditions = append(conditions, a.Conditions...)
			}
			for _, l := range o.Status.Listeners {
				for _, c := range l.Conditions {
					c.Type = "listener " + c.Type
					conditions = append(conditions, c)
				}
			}
			for _, c := range conditions {
				got := condition{c.Type, string(c.Status), c.Reason, c.Message}
				if got.kind != w.kind {
					continue
				}
				if got.status == w.status && got.reason == w.reason && matches(w.message, got.message) && c.ObservedGeneration == o.Metadata.Generation {
					return nil
				}
				return fmt.Errorf("it has %s (generation %d of %d)", got, c.ObservedGeneration, o.Metadata.Generation)
			}
			return fmt.Errorf("it has no condition %s", w.kind)
		})
	}
}

// programmed is what a route's parent shows when all is well.
var programmed = condition{"fairlead.dev/Programmed", "True", "Programmed", "every machine concerned runs it"}

// awaitIngress waits until an IngressRoute has the status and a description that
// matches.
func (s *site) awaitIngress(t *testing.T, r ref, status, description string) {
	t.Helper()
	s.await(t, fmt.Sprintf("%s to be %s: %s", r, status, description), func(ctx context.Context) error {
		o, err := s.get(ctx, r)
		if err != nil {
			return err
		}
		if o.Status.CurrentStatus != status || !matches(description, o.Status.Description) {
			return fmt.Errorf("it is %s: %s", o.Status.CurrentStatus, o.Status.Description)
		}
		return nil
	})
}

// awaitProblem waits until the plane's status, as `fairlead status` shows it, names a
// problem; in the message "…" stands for any text.
func (s *site) awaitProblem(t *testing.T, want v1.Problem) {
	t.Helper()
	s.await(t, fmt.Sprintf("the problem %s %s: %s", want.Subject, want.Reason, want.Message), func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(status.Problems, func(p v1.Problem) bool {
			return p.Severity == want.Severity && p.Subject == want.Subject && p.Reason == want.Reason && matches(want.Message, p.Message)
		}) {
			return fmt.Errorf("the problems are %+v", status.Problems)
		}
		return nil
	})
}

// awaitNoProblem waits until the plane's status names no problem.
func (s *site) awaitNoProblem(t *testing.T) {
	t.Helper()
	s.await(t, "nothing to be wrong", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		if len(status.Problems) > 0 {
			return fmt.Errorf("the problems are %+v", status.Problems)
		}
		return nil
	})
}

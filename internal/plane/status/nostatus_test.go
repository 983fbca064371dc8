package status

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// TestDefinitionWithoutStatus holds that a status that cannot be written for want of a subresource is said, once for its
// kind, and tried again.
func TestDefinitionWithoutStatus(t *testing.T) {
	r := newWriterRig(t)
	var log strings.Builder
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	live := r.api.change("m", func(*v1alpha1.Machine) {})
	r.api.with(func() { r.api.bare = true })
	a, err := r.update(context.Background(), showing(live, "1", 0))
	if a.outcome != outcomeRefused || !errors.Is(err, errNoStatus) {
		t.Fatalf("%s, %v", a.outcome, err)
	}
	for range 2 {
		if pause := r.failed(model.Object{Kind: "Machine", Name: "m"}, a.outcome, err); pause != noStatusPause {
			t.Errorf("it is tried again after %s", pause)
		}
	}
	if got := strings.Count(log.String(), "no subresource status"); got != 1 {
		t.Errorf("it is said %d times: %s", got, log.String())
	}
	r.api.with(func() { r.api.bare = false; delete(r.api.objects, "m") })
	if a, err := r.update(context.Background(), showing(live, "1", 0)); a.outcome != outcomeGone || err != nil {
		t.Errorf("of an object that is gone: %s, %v", a.outcome, err)
	}
}

// untypedAPI answers with objects that do not fit their types.
type untypedAPI struct {
	client.Client
	sent *unstructured.Unstructured
}

func (u *untypedAPI) Status() client.SubResourceWriter { return untypedStatus{of: u} }

type untypedStatus struct {
	client.SubResourceWriter
	of *untypedAPI
}

func (u untypedStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	sent, is := o.(*unstructured.Unstructured)
	if !is {
		return errors.New("json: cannot unmarshal string into Go struct field")
	}
	u.of.sent = sent.DeepCopy()
	sent.SetResourceVersion("8")
	return nil
}

// TestStatusOfUnreadableObjects holds that the answer to the status of an object with values that do not fit is not read
// into its type.
func TestStatusOfUnreadableObjects(t *testing.T) {
	api := &untypedAPI{}
	w := &Writer{client: api, now: time.Now}
	o := &contourv1beta1.IngressRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "app", ResourceVersion: "7", Annotations: map[string]string{snapshot.Unreadable: "spec.routes", "a": "b"}}}
	a, err := w.update(context.Background(), Write{
		Object: model.Object{Kind: "IngressRoute", Namespace: "team", Name: "app"}, Live: o,
		Apply: func(live client.Object, _ metav1.Time) client.Object {
			n := live.DeepCopyObject().(*contourv1beta1.IngressRoute)
			n.Status.CurrentStatus = contourv1beta1.StatusInvalid
			return n
		},
	})
	if err != nil || a.outcome != outcomeWritten || a.result.GetResourceVersion() != "8" {
		t.Fatalf("%s %v %+v", a.outcome, err, a.result)
	}
	status, _, _ := unstructured.NestedString(api.sent.Object, "status", "currentStatus")
	if status != "invalid" || api.sent.GetKind() != "IngressRoute" || api.sent.GetAPIVersion() != "contour.heptio.com/v1beta1" || len(api.sent.GetAnnotations()) != 1 {
		t.Errorf("sent %+v", api.sent.Object)
	}
}

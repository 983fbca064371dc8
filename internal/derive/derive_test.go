package derive

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// api holds ConfigMaps, and refuses what it is told to.
type api struct {
	client.Client // nil: nothing else is asked

	mu       sync.Mutex
	objects  map[client.ObjectKey]*corev1.ConfigMap
	refuse   error
	during   func() // called once by the next update or delete
	requests int
	writes   int
}

func newAPI() *api { return &api{objects: map[client.ObjectKey]*corev1.ConfigMap{}} }

func (a *api) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests++
	switch at := a.objects[k]; {
	case a.refuse != nil:
		return a.refuse
	case at == nil:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, k.Name)
	default:
		at.DeepCopyInto(o.(*corev1.ConfigMap))
		return nil
	}
}

func (a *api) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writes++
	if a.objects[client.ObjectKeyFromObject(o)] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "configmaps"}, o.GetName())
	}
	a.objects[client.ObjectKeyFromObject(o)] = o.DeepCopyObject().(*corev1.ConfigMap)
	return nil
}

func (a *api) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.during != nil {
		a.during()
		a.during = nil
	}
	a.writes++
	a.objects[client.ObjectKeyFromObject(o)] = o.DeepCopyObject().(*corev1.ConfigMap)
	return nil
}

func (a *api) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.during != nil {
		a.during()
		a.during = nil
	}
	var all client.DeleteOptions
	all.ApplyOptions(options)
	if at := a.objects[client.ObjectKeyFromObject(o)]; at != nil && all.Preconditions.ResourceVersion != nil && *all.Preconditions.ResourceVersion != at.ResourceVersion {
		return apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, o.GetName(), errors.New("it has changed"))
	}
	a.writes++
	delete(a.objects, client.ObjectKeyFromObject(o))
	return nil
}

func (a *api) set(refuse error, objects ...*corev1.ConfigMap) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = refuse
	for _, o := range objects {
		a.objects[client.ObjectKeyFromObject(o)] = o
	}
}

// seen are the value of the object, how many requests there were, and how many writes.
func (a *api) seen() (value string, requests, writes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o := a.objects[client.ObjectKey{Namespace: "n", Name: "a"}]; o != nil {
		value = o.Data["k"]
	}
	return value, a.requests, a.writes
}

func configMap(value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}, Data: map[string]string{"k": value}}
}

func object(value string, owner types.UID) Object {
	o := Object{Wanted: configMap(value), Merge: func(live, wanted client.Object) bool {
		l, w := live.(*corev1.ConfigMap), wanted.(*corev1.ConfigMap)
		if l.Data["k"] == w.Data["k"] {
			return false
		}
		l.Data = maps.Clone(l.Data)
		l.Data["k"] = w.Data["k"]
		return true
	}}
	if owner != "" {
		o.Owner = &metav1.OwnerReference{APIVersion: "v1", Kind: "Owner", Name: "o", UID: owner}
	}
	return o
}

// An object is created, changed, left alone and deleted, and one of somebody else's is not touched.
func TestApply(t *testing.T) {
	a := newAPI()
	absent := object("", "1")
	absent.Absent = true
	for _, step := range []struct {
		name   string
		o      Object
		want   string
		writes int
		err    error
	}{
		{"it is created", object("v1", "1"), "v1", 1, nil},
		{"it is as it should be", object("v1", "1"), "v1", 1, nil},
		{"it is changed", object("v2", "1"), "v2", 2, nil},
		{"it is another owner's", object("v3", "2"), "v2", 2, ErrForeign},
		{"it is another owner's, and not wanted", Object{Wanted: configMap(""), Absent: true, Owner: object("", "2").Owner}, "v2", 2, nil},
		{"it goes", absent, "", 3, nil},
		{"it is gone", absent, "", 3, nil},
	} {
		err := Apply(t.Context(), a, step.o)
		if value, _, writes := a.seen(); value != step.want || writes != step.writes || !errors.Is(err, step.err) {
			t.Errorf("%s: %q after %d writes, %v; want %q after %d, %v", step.name, value, writes, err, step.want, step.writes, step.err)
		}
	}
	if made, err := Create(t.Context(), a, configMap("first")); !made || err != nil {
		t.Errorf("created %t, %v", made, err)
	}
	if made, err := Create(t.Context(), a, configMap("second")); made || err != nil {
		t.Errorf("created again %t, %v", made, err)
	}
	if value, _, _ := a.seen(); value != "first" {
		t.Errorf("what exists became %q", value)
	}
}

// An object that becomes somebody else's between the question and the deletion stays.
func TestDeletionOfWhatWasOurs(t *testing.T) {
	inTerm(t, func(t *testing.T, a *api, w *Writer) {
		ours := configMap("v")
		ours.ResourceVersion, ours.Labels = "1", map[string]string{"ours": "yes"}
		a.set(nil, ours)
		a.during = func() {
			theirs := configMap("v")
			theirs.ResourceVersion = "2"
			a.objects[client.ObjectKeyFromObject(theirs)] = theirs
		}
		w.Offer(Object{Wanted: configMap(""), Absent: true, Ours: func(live client.Object) bool { return live.GetLabels()["ours"] != "" }})
		time.Sleep(time.Minute)
		if value, _, writes := a.seen(); value != "v" || writes != 0 || w.Pending() != 0 {
			t.Errorf("%q after %d writes; %d pending", value, writes, w.Pending())
		}
	})
}

// inTerm runs a test with a Writer in a term.
func inTerm(t *testing.T, test func(t *testing.T, a *api, w *Writer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		w := NewWriter(a, 1000, &corev1.ConfigMap{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		w.Enable(ctx)
		test(t, a, w)
		cancel()
		<-done
	})
}

// The same object costs nothing, another form of it replaces what waits, and outside of a term nothing is written.
func TestWriter(t *testing.T) {
	inTerm(t, func(t *testing.T, a *api, w *Writer) {
		expect := func(what, want string, requests, writes int) {
			t.Helper()
			synctest.Wait()
			if value, r, n := a.seen(); value != want || r != requests || n != writes {
				t.Errorf("%s: %q after %d requests and %d writes; want %q after %d and %d", what, value, r, n, want, requests, writes)
			}
		}
		for range 3 {
			w.Offer(object("v1", "1"))
		}
		expect("it is offered", "v1", 1, 1)
		w.Offer(object("v1", "1"))
		expect("it is offered again", "v1", 1, 1)
		w.Offer(object("v1", "2"))
		expect("another owner of the name offers it", "v1", 2, 1)
		w.Offer(object("v2", "1"))
		expect("it is another", "v2", 3, 2)
		a.mu.Lock()
		a.during = func() { w.Offer(object("v2", "1")) }
		a.mu.Unlock()
		w.Offer(object("v3", "1"))
		expect("while it is written, it is as before again", "v2", 5, 4)
		w.Forget(configMap(""))
		w.Offer(object("v2", "1"))
		expect("it was forgotten", "v2", 6, 4)
		w.Disable()
		w.Offer(object("v3", "1"))
		expect("the term is over", "v2", 6, 4)
		w.Enable(t.Context())
		w.Offer(object("v3", "1"))
		expect("a term later", "v3", 7, 5)
	})
}

// A missing right costs one request and is told once; what is not wanted is no trouble then. Faults are told once in a row
// and tried again until they are over.
func TestWriterInTrouble(t *testing.T) {
	inTerm(t, func(t *testing.T, a *api, w *Writer) {
		var told []Trouble
		offer := func(value string, absent bool) {
			o := object(value, "1")
			o.Absent, o.Tell = absent, func(t Trouble, _ error) { told = append(told, t) }
			w.Offer(o)
		}
		expect := func(what string, requests int, want ...Trouble) {
			t.Helper()
			synctest.Wait()
			if _, r, _ := a.seen(); r != requests || !reflect.DeepEqual(told, want) {
				t.Errorf("%s: %d requests, told %v; want %d and %v", what, r, told, requests, want)
			}
		}
		a.set(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "a", nil))
		offer("v1", true)
		expect("no right, and nothing wanted", 1)
		for range 3 {
			offer("v1", false)
		}
		expect("no right", 2, Forbidden)
		time.Sleep(forbiddenPause)
		expect("still no right", 3, Forbidden)
		a.set(nil)
		time.Sleep(forbiddenPause)
		expect("the right is there", 4, Forbidden)
		if value, _, _ := a.seen(); value != "v1" {
			t.Errorf("it is %q", value)
		}
		a.set(errors.New("away"))
		offer("v2", false)
		time.Sleep(2 * retryShortest)
		expect("the API is away", 6, Forbidden, Failed)
		a.set(nil)
		time.Sleep(retryLongest)
		expect("the API is back", 7, Forbidden, Failed)
		if value, _, _ := a.seen(); value != "v2" {
			t.Errorf("it is %q", value)
		}
	})
}

// An object that is to be looked at again is put right after somebody has written over it.
func TestRecheck(t *testing.T) {
	inTerm(t, func(t *testing.T, a *api, w *Writer) {
		o := object("v1", "")
		o.Recheck = time.Minute
		w.Offer(o)
		synctest.Wait()
		for range 3 {
			a.set(nil, configMap("forged"))
			w.Offer(o)
			time.Sleep(time.Minute)
			synctest.Wait()
			if value, _, _ := a.seen(); value != "v1" {
				t.Errorf("it is %q", value)
			}
		}
		if _, requests, _ := a.seen(); requests != 4 {
			t.Errorf("%d requests", requests)
		}
	})
}

// silentAPI answers nothing about ServiceAccounts.
type silentAPI struct{ *api }

func (a silentAPI) Get(ctx context.Context, k client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if _, is := o.(*corev1.ServiceAccount); is {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.api.Get(ctx, k, o, options...)
}

// Objects of one kind about which the API does not answer hold up none of another.
func TestKindsDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		w := NewWriter(silentAPI{a}, 1000, &corev1.ServiceAccount{}, &corev1.ConfigMap{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		w.Enable(ctx)
		w.Offer(Object{Wanted: &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a"}}})
		synctest.Wait()
		w.Offer(object("v1", ""))
		synctest.Wait()
		if value, _, _ := a.seen(); value != "v1" {
			t.Errorf("the ConfigMap is %q while a ServiceAccount is waited for", value)
		}
		cancel()
		<-done
	})
}

func TestOwned(t *testing.T) {
	mine := &metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: "plane", UID: "2"}
	earlier, other := *mine, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "plane", UID: "3"}
	earlier.UID = "1"
	for name, c := range map[string]struct {
		owner        *metav1.OwnerReference
		before, want []metav1.OwnerReference
	}{
		"nobody's":       {mine, nil, []metav1.OwnerReference{*mine}},
		"an earlier one": {mine, []metav1.OwnerReference{earlier, other}, []metav1.OwnerReference{other, *mine}},
		"mine":           {mine, []metav1.OwnerReference{*mine, other}, []metav1.OwnerReference{*mine, other}},
		"no owner":       {nil, []metav1.OwnerReference{earlier}, []metav1.OwnerReference{earlier}},
	} {
		got, changed := Owned(c.before, c.owner)
		if !reflect.DeepEqual(got, c.want) || changed == reflect.DeepEqual(c.before, c.want) {
			t.Errorf("%s: %v, %v", name, got, changed)
		}
	}
}

// hungAPI answers nothing about one ConfigMap.
type hungAPI struct{ *api }

func (a hungAPI) Get(ctx context.Context, k client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if k.Name == "hung" {
		<-ctx.Done()
		return ctx.Err()
	}
	return a.api.Get(ctx, k, o, options...)
}

// An object about which the API does not answer holds up no other one of its kind.
func TestObjectsOfAKindDoNotWaitForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI()
		w := NewWriter(hungAPI{a}, 1000, &corev1.ConfigMap{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.Run(ctx); close(done) }()
		w.Enable(ctx)
		w.Offer(Object{Wanted: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "hung"}}})
		synctest.Wait()
		w.Offer(object("v1", ""))
		synctest.Wait()
		if value, _, _ := a.seen(); value != "v1" {
			t.Errorf("the ConfigMap is %q while another one is waited for", value)
		}
		cancel()
		<-done
	})
}

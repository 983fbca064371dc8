package kubesim

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const contentType = runtime.ContentTypeProtobuf

// bookmarkInterval is how often those who watch are told the newest resource version.
const bookmarkInterval = time.Minute

// query is a list or a watch.
type query struct {
	resource, namespace string // all namespaces: empty
	values              url.Values
}

func (q query) is(name string) bool {
	is, _ := strconv.ParseBool(q.values.Get(name))
	return is
}

func (q query) selects(n types.NamespacedName) bool {
	return q.namespace == "" || q.namespace == n.Namespace
}

func (c *Cluster) serve(w http.ResponseWriter, r *http.Request, path string) {
	c.mu.Lock()
	c.counts.Requests++
	down := c.down
	c.mu.Unlock()
	switch {
	case down:
		c.refuse(w, apierrors.NewServiceUnavailable("the cluster is down"))
		return
	case r.Header.Get("Authorization") != "Bearer "+c.token:
		c.refuse(w, apierrors.NewUnauthorized("the token is another one"))
		return
	case path == "/api/v1/namespaces/"+metav1.NamespaceSystem:
		c.answer(w, http.StatusOK, &corev1.Namespace{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(c.name)},
		})
		return
	}
	q := query{values: r.URL.Query()}
	rest, is := strings.CutPrefix(path, "/api/v1/")
	if q.resource = Services; !is {
		rest, is = strings.CutPrefix(path, "/apis/discovery.k8s.io/v1/")
		q.resource = EndpointSlices
	}
	if in, scoped := strings.CutPrefix(rest, "namespaces/"); scoped {
		q.namespace, rest, _ = strings.Cut(in, "/")
	}
	switch {
	case !is || rest != q.resource || r.Method != http.MethodGet || q.values.Get("labelSelector") != "" || q.values.Get("fieldSelector") != "":
		c.refuse(w, apierrors.NewBadRequest("a simulated cluster does not have that"))
	case q.is("watch"):
		c.watch(w, r, q)
	default:
		c.list(w, q)
	}
}

func (c *Cluster) answer(w http.ResponseWriter, code int, o runtime.Object) {
	raw, err := encode(o)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write(raw)
}

func (c *Cluster) refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	s := err.Status()
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	c.answer(w, int(s.Code), &s)
}

// names are those of a resource, in order. c.mu is held.
func (c *Cluster) names(q query) []types.NamespacedName {
	names := slices.SortedFunc(maps.Keys(c.objects[q.resource]), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.DeleteFunc(names, func(n types.NamespacedName) bool { return !q.selects(n) })
}

// list answers a page. The continuation is the number of objects before it: those who put objects meanwhile get lists with
// gaps, as no kube-apiserver has.
func (c *Cluster) list(w http.ResponseWriter, q query) {
	c.mu.Lock()
	names := c.names(q)
	from, _ := strconv.Atoi(q.values.Get("continue"))
	limit, _ := strconv.Atoi(q.values.Get("limit"))
	if from == 0 && limit != 1 { // one object is asked for to see how new the cluster is
		c.counts.Lists[q.resource]++
	}
	m := metav1.ListMeta{ResourceVersion: strconv.FormatUint(c.rv, 10)}
	names = names[min(from, len(names)):]
	if limit > 0 && len(names) > limit {
		left := int64(len(names) - limit)
		m.Continue, m.RemainingItemCount = strconv.Itoa(from+limit), &left
		names = names[:limit]
	}
	services := &corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: m}
	slices := &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, ListMeta: m}
	for _, n := range names {
		switch o := c.objects[q.resource][n].object.(type) {
		case *corev1.Service:
			services.Items = append(services.Items, *o)
		case *discoveryv1.EndpointSlice:
			slices.Items = append(slices.Items, *o)
		}
	}
	c.mu.Unlock()
	if q.resource == Services {
		c.answer(w, http.StatusOK, services)
	} else {
		c.answer(w, http.StatusOK, slices)
	}
}

// watch answers with changes until the time is over that is asked for.
func (c *Cluster) watch(w http.ResponseWriter, r *http.Request, q query) {
	c.mu.Lock()
	cut, rv := c.cut, c.rv
	var frames [][]byte
	if q.is("sendInitialEvents") {
		c.counts.Lists[q.resource]++
		for _, n := range c.names(q) {
			f, err := frameOf(watch.Added, c.objects[q.resource][n].raw)
			if err != nil {
				break
			}
			frames = append(frames, f)
		}
		frames = append(frames, bookmark(q.resource, rv, true))
	} else {
		from, err := strconv.ParseUint(q.values.Get("resourceVersion"), 10, 64)
		if err != nil || from < c.oldest || from > rv {
			c.mu.Unlock()
			c.refuse(w, apierrors.NewResourceExpired("the resource version is too old, or there is none"))
			return
		}
		rv = from
	}
	c.mu.Unlock()
	w.Header().Set("Content-Type", contentType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	seconds, err := strconv.Atoi(q.values.Get("timeoutSeconds"))
	if err != nil {
		seconds = 1800
	}
	over := time.NewTimer(time.Duration(seconds) * time.Second)
	defer over.Stop()
	bookmarks := time.NewTicker(bookmarkInterval)
	defer bookmarks.Stop()
	for {
		for _, f := range frames {
			if _, err := w.Write(f); err != nil {
				return
			}
		}
		if flush() != nil {
			return
		}
		var news chan struct{}
		var there bool
		if frames, rv, news, there = c.since(q, rv); !there {
			return
		}
		if len(frames) > 0 {
			continue
		}
		select {
		case <-news:
		case <-bookmarks.C:
			frames = append(frames, bookmark(q.resource, rv, false))
		case <-cut:
			return
		case <-over.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// since has the changes after a resource version, the newest version, and a channel that is closed at the next change; false: the
// changes are not remembered.
func (c *Cluster) since(q query, rv uint64) (frames [][]byte, now uint64, news chan struct{}, there bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rv < c.oldest {
		return nil, 0, nil, false
	}
	i, _ := slices.BinarySearchFunc(c.log, rv+1, func(x change, rv uint64) int { return cmp.Compare(x.rv, rv) })
	for _, x := range c.log[i:] {
		if x.resource == q.resource && q.selects(x.name) {
			frames = append(frames, x.frame)
		}
	}
	return frames, c.rv, c.news, true
}

// bookmark is an event without an object.
func bookmark(resource string, rv uint64, initial bool) []byte {
	m := metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(rv, 10)}
	if initial {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	var o runtime.Object = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: m}
	if resource == EndpointSlices {
		o = &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, ObjectMeta: m}
	}
	raw, err := encode(o)
	if err != nil {
		return nil
	}
	frame, _ := frameOf(watch.Bookmark, raw)
	return frame
}

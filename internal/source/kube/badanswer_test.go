package kube

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// of makes a fault for the requests of Services alone.
func of(fault func(w http.ResponseWriter, r *http.Request)) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/services") {
			return false
		}
		fault(w, r)
		return true
	}
}

func statusFault(code int, reason metav1.StatusReason, message string) func(w http.ResponseWriter, r *http.Request) bool {
	return of(func(w http.ResponseWriter, _ *http.Request) { refuse(w, code, reason, message) })
}

func textFault(text string) func(w http.ResponseWriter, r *http.Request) bool {
	return of(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
	})
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// badAPIs are the answers that an API should not give.
var badAPIs = map[string]struct {
	fault   func(w http.ResponseWriter, r *http.Request) bool
	reason  string
	message string // part of what the Sink is told
	pages   bool   // it concerns lists in pages alone
}{
	"401": {
		fault:  statusFault(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"),
		reason: v1alpha1.ReasonUnauthorized, message: "services: Unauthorized",
	},
	"403": {
		fault:  statusFault(http.StatusForbidden, metav1.StatusReasonForbidden, `services is forbidden: User "x" cannot list resource "services"`),
		reason: v1alpha1.ReasonForbidden, message: `services: services is forbidden: User "x" cannot list resource "services"`,
	},
	"404": {
		fault:  of(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "404 page not found", http.StatusNotFound) }),
		reason: v1alpha1.ReasonBadAnswer, message: "the API at http://api does not serve Services: it is not the API of a Kubernetes cluster, or the URL has a wrong path",
	},
	"429": {
		fault: of(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
		}),
		reason: v1alpha1.ReasonThrottled, message: "too many requests",
	},
	"500": {
		fault:  statusFault(http.StatusInternalServerError, metav1.StatusReasonInternalError, "etcdserver: request timed out"),
		reason: v1alpha1.ReasonServerError, message: "etcdserver: request timed out",
	},
	"503 of a proxy": {
		fault: of(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no healthy upstream", http.StatusServiceUnavailable)
		}),
		reason: v1alpha1.ReasonServerError, message: "unable to handle the request",
	},
	"410 for what was never read": {
		fault:  statusFault(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"),
		reason: v1alpha1.ReasonBadAnswer, message: "too old resource version",
	},
	"hanging": {
		fault:  of(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		reason: v1alpha1.ReasonTimeout, message: "no answer within 30s",
	},
	"hanging in the middle": {
		fault: of(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1",`)
			flush(w)
			<-r.Context().Done()
		}),
		reason: v1alpha1.ReasonTimeout, message: "no byte of the ",
	},
	"slow-dripping": {
		fault: of(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				flush(w)
				select {
				case <-time.After(time.Second):
				case <-r.Context().Done():
				}
			}
		}),
		reason: v1alpha1.ReasonTimeout, message: "takes longer than 5m0s",
	},
	"half an answer": {
		fault: of(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`)
		}),
		reason: v1alpha1.ReasonBadAnswer, message: "unexpected EOF", pages: true,
	},
	"half a list": {
		fault:  textFault(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"na`),
		reason: v1alpha1.ReasonBadAnswer, message: "services: ", pages: true,
	},
	"a web page": {
		fault: of(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<html>please log in</html>")
		}),
		reason: v1alpha1.ReasonBadAnswer, message: "services: ", pages: true,
	},
	"an empty object": {
		fault:  textFault(`{}`),
		reason: v1alpha1.ReasonBadAnswer, message: "services: ", pages: true,
	},
	"an empty list without a version": {
		fault:  textFault(`{"kind":"ServiceList","apiVersion":"v1","items":[]}`),
		reason: v1alpha1.ReasonBadAnswer, message: "services: ", pages: true,
	},
	"too large": {
		fault: of(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`)
			for i := range 20000 {
				fmt.Fprintf(w, `{"metadata":{"namespace":"a","name":"s%d","annotations":{"a":%q}}},`, i, strings.Repeat("x", 100))
			}
			fmt.Fprint(w, `{"metadata":{"namespace":"a","name":"last"}}]}`)
		}),
		reason: v1alpha1.ReasonBadAnswer, message: "is larger than 1 MiB (spec.limits.answerMiB)", pages: true,
	},
	"pages without end": {
		fault: of(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"more"},"items":[{"metadata":{"namespace":"a","name":"s","annotations":{"a":%q}}}]}`,
				strings.Repeat("x", 100_000))
		}),
		reason: v1alpha1.ReasonBadAnswer, message: "the list is larger than 1 MiB (spec.limits.answerMiB)", pages: true,
	},
	"a page that is missing": {
		fault: of(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("continue") != "" {
				refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "the next page is lost")
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"more"},"items":[{"metadata":{"namespace":"a","name":"one"}}]}`)
		}),
		reason: v1alpha1.ReasonServerError, message: "list services: the next page is lost", pages: true,
	},
	"a redirect to another host": {
		fault: of(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere/api/v1/services", http.StatusFound)
		}),
		reason: v1alpha1.ReasonBadAnswer, message: "http://api redirects to http://elsewhere: redirects to another host are not followed",
	},
	"a connection that breaks": {
		fault:  of(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		reason: v1alpha1.ReasonUnreachable, message: "EOF",
	},
}

// eachBadAPI runs a test with each fault that the API can have.
func eachBadAPI(t *testing.T, test func(t *testing.T, f *fakeAPI, fault func(w http.ResponseWriter, r *http.Request) bool, reason, message string)) {
	for name, c := range badAPIs {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *fakeAPI) {
				if c.pages && !f.paged {
					t.Skip("this API does not list in pages")
				}
				test(t, f, func(w http.ResponseWriter, r *http.Request) bool {
					q := r.URL.Query()
					switch {
					case c.pages && q.Get("watch") != "": // it concerns lists alone
						return false
					case f.paged && q.Get("sendInitialEvents") != "": // it says that it lists in pages
						return false
					}
					return c.fault(w, r)
				}, c.reason, c.message)
			})
		})
	}
}

// An API that is bad from the beginning gives nothing, and is asked again until it is well.
func TestBadFromTheBeginning(t *testing.T) {
	eachBadAPI(t, func(t *testing.T, f *fakeAPI, fault func(w http.ResponseWriter, r *http.Request) bool, reason, message string) {
		f.setFault(fault)
		f.put(newService("a/one"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, func(c *Config) { c.AnswerBytes = 1 << 20 })
		time.Sleep(10 * time.Minute)
		want(t, "bad", s.took(), "")
		s.heardOnly(t, reason, message)
		if n := len(f.asked()); n > 600 { // some need a dozen for an attempt
			t.Errorf("%d requests in ten minutes", n)
		}
		f.setFault(nil)
		time.Sleep(6 * time.Minute)
		want(t, "well again", s.took(), "replace a/one")
		if heard := s.heard(); len(heard) == 0 || heard[len(heard)-1] != nil {
			t.Errorf("contacts %v", heard)
		}
	})
}

// An API that becomes bad takes nothing away, and what has changed meanwhile is given when it is well again.
func TestBadLater(t *testing.T) {
	eachBadAPI(t, func(t *testing.T, f *fakeAPI, fault func(w http.ResponseWriter, r *http.Request) bool, reason, _ string) {
		f.put(newService("a/one"), newService("a/two"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, func(c *Config) { c.AnswerBytes = 1 << 20 })
		moment()
		want(t, "first", s.took(), "replace a/one a/two")
		f.setFault(fault)
		f.breakWatches()
		f.remove("services", "a/two")
		f.compact()
		time.Sleep(10 * time.Minute)
		if took := s.took(); took != "" && took != "replace a/one a/two" { // the list of EndpointSlices
			t.Errorf("bad: %q", took)
		}
		s.heardOnly(t, reason, "")
		f.setFault(nil)
		time.Sleep(6 * time.Minute)
		want(t, "well again", s.took(), "replace a/one")
		if heard := s.heard(); len(heard) == 0 || heard[len(heard)-1] != nil {
			t.Errorf("contacts %v", heard)
		}
	})
}

// heardOnly fails unless all errors that were told have the reason, and one of them the message. After the first of
// them the upstream must not seem to be well.
func (s *sink) heardOnly(t *testing.T, reason, message string) {
	t.Helper()
	found, bad := false, false
	for _, err := range s.heard() {
		if err == nil {
			if bad {
				t.Error("told that it is well in between")
				return
			}
			continue
		}
		bad = true
		if cloud.ReasonOf(err) != reason {
			t.Errorf("contact %s: %v, want %s", cloud.ReasonOf(err), err, reason)
			return
		}
		found = found || strings.Contains(err.Error(), message)
	}
	if !found {
		t.Errorf("no contact with %q", message)
	}
}

// An answer 429 delays all requests of the upstream for as long as it says.
func TestRetryAfter(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		var at []time.Time
		f.setFault(func(w http.ResponseWriter, _ *http.Request) bool {
			if at = append(at, time.Now()); len(at) > 1 {
				return false
			}
			w.Header().Set("Retry-After", "60")
			refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests")
			return true
		})
		s := f.follow(t, nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(at) != 1 {
			t.Errorf("%d requests within a minute", len(at))
		}
		time.Sleep(6 * time.Second)
		want(t, "after a minute", s.took(), "replace a/one")
	})
}

// A cluster of old has Services, and no EndpointSlices.
func TestWithoutEndpointSlices(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		delete(f.objects, "endpointslices")
		s := f.follow(t, nil)
		time.Sleep(time.Minute)
		want(t, "given", s.took(), "")
		s.heardOnly(t, v1alpha1.ReasonBadAnswer, "the API at http://api does not serve EndpointSlices (discovery.k8s.io/v1), as Kubernetes does since version 1.21")
	})
}

// A continue token that has expired begins the list again: a part of it is never taken for the whole.
func TestExpiredPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeAPI(t)
		f.paged, f.pages = true, 1
		f.put(newService("a/one"), newService("a/two"), newService("a/three"))
		expired := 0
		f.setFault(ofServices(func(w http.ResponseWriter, r *http.Request) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.URL.Query().Get("continue") == "" {
				return false
			}
			expired++
			f.pages = 0
			refuse(w, http.StatusGone, metav1.StatusReasonExpired, "the provided continue parameter is too old")
			return true
		}))
		s := f.follow(t, nil)
		moment()
		want(t, "given", s.took(), "replace a/one a/three a/two")
		if expired != 1 {
			t.Errorf("%d pages have expired", expired)
		}
		for _, err := range s.heard() {
			if err != nil {
				t.Errorf("contact %v", err)
			}
		}
	})
}

func ofServices(fault func(w http.ResponseWriter, r *http.Request) bool) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/services") && fault(w, r)
	}
}

// Events that cannot be objects, and errors sent as events, remove nothing.
func TestBadEvents(t *testing.T) {
	for name, c := range map[string]struct {
		event  string
		reason string
	}{
		"no JSON":           {"boo\n", v1alpha1.ReasonBadAnswer},
		"half an object":    {`{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"na` + "\n", v1alpha1.ReasonBadAnswer},
		"another kind":      {`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"900"}}}` + "\n", v1alpha1.ReasonBadAnswer},
		"without a version": {`{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"x"}}}` + "\n", v1alpha1.ReasonBadAnswer},
		"an error":          {`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"reason":"InternalError","message":"no leader"}}` + "\n", v1alpha1.ReasonServerError},
		"far too large":     {`{"type":"ADDED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"` + strings.Repeat("x", 17<<20) + `"}}}` + "\n", v1alpha1.ReasonBadAnswer},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *fakeAPI) {
				f.put(newService("a/one"), newSlice("a/one-1", "one", "10.0.0.1"))
				s := f.follow(t, nil)
				moment()
				want(t, "first", s.took(), "replace a/one")
				bad := ofServices(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Get("watch") == "" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, c.event)
					flush(w)
					select {
					case <-r.Context().Done():
					case <-time.After(time.Minute):
					}
					return true
				})
				f.setFault(bad)
				f.breakWatches()
				f.put(newService("a/two"))
				if len(c.event) < 1<<20 {
					time.Sleep(10 * time.Minute)
				}
				time.Sleep(2 * time.Second)
				want(t, "bad", s.took(), "")
				s.heardOnly(t, c.reason, "watch services: ")
				f.setFault(nil)
				time.Sleep(time.Minute)
				want(t, "well again", s.took(), "put a/two")
			})
		})
	}
}

// An API that accepts watches and says nothing is noticed.
func TestSilentWatch(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		s := f.follow(t, nil)
		moment()
		f.setFault(ofServices(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("watch") == "" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			flush(w)
			<-r.Context().Done()
			return true
		}))
		f.breakWatches()
		f.put(newService("a/two"))
		time.Sleep(time.Minute)
		f.setFault(nil)
		time.Sleep(3 * time.Minute)
		want(t, "given", s.took(), "replace a/one; put a/two")
	})
}

// An API that closes every watch at once is asked less and less.
func TestShortWatches(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		s := f.follow(t, nil)
		moment()
		f.asked()
		f.setFault(ofServices(func(w http.ResponseWriter, r *http.Request) bool { return r.URL.Query().Get("watch") != "" }))
		f.breakWatches()
		time.Sleep(10 * time.Minute)
		if n := len(f.asked()); n > 150 {
			t.Errorf("%d requests in ten minutes", n)
		}
		f.put(newService("a/two"))
		f.setFault(nil)
		time.Sleep(time.Minute)
		want(t, "given", s.took(), "replace a/one; put a/two")
	})
}

// An API whose watches begin with the objects, and never say that these were all, is listed in pages after a while.
func TestUnmarkedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeAPI(t)
		f.unmarked = true
		f.put(newService("a/one"), newSlice("a/one-1", "one", "10.0.0.1"))
		s := f.follow(t, nil)
		time.Sleep(initialTime + time.Minute)
		want(t, "given", s.took(), "replace a/one")
		f.compact()
		f.put(newService("a/two"))
		f.compact()
		f.breakWatches()
		time.Sleep(time.Minute)
		want(t, "endpoints", s.endpoints("a/two"), "")
	})
}

// A list of objects that together are too large is not read to its end, however it comes, and is no reason to forget
// the one before.
func TestTooManyObjects(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.put(newService("a/one"))
		s := f.follow(t, func(c *Config) { c.AnswerBytes = 1 << 20 })
		moment()
		want(t, "first", s.took(), "replace a/one")
		f.setDown(true)
		for i := range 20 {
			o := newService(fmt.Sprintf("a/many-%d", i))
			o.Annotations = map[string]string{"large": strings.Repeat("x", 100_000)}
			f.put(o)
		}
		f.compact()
		f.setDown(false)
		time.Sleep(10 * time.Minute)
		if took := s.took(); took != "replace a/one" { // the list of EndpointSlices
			t.Errorf("given: %q", took)
		}
		heard := s.heard()
		if last := heard[len(heard)-1]; cloud.ReasonOf(last) != v1alpha1.ReasonBadAnswer || !strings.Contains(last.Error(), "larger than 1 MiB (spec.limits.answerMiB)") {
			t.Errorf("contact %v", last)
		}
		for i := range 20 {
			f.remove("services", fmt.Sprintf("a/many-%d", i))
		}
		time.Sleep(time.Minute)
		want(t, "fewer again", s.took(), "replace a/one")
	})
}

// Objects that together are too large are not kept, whether they are new or changed.
func TestTooLargeByWatch(t *testing.T) {
	for _, event := range []string{"ADDED", "MODIFIED"} {
		t.Run(event, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *fakeAPI) {
				f.put(newService("a/one"))
				s := f.follow(t, func(c *Config) { c.AnswerBytes = 1 << 20 })
				moment()
				f.setFault(ofServices(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Get("watch") == "" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					note := strings.Repeat("x", 4000)
					for i := range 1000 {
						o := typed(newService(fmt.Sprintf("a/many-%d", i)))
						o.SetResourceVersion(strconv.Itoa(1000 + i))
						o.SetAnnotations(map[string]string{"a": note, "b": note, "c": note})
						send(w, map[string]any{"type": event, "object": o})
					}
					flush(w)
					<-r.Context().Done()
					return true
				}))
				f.breakWatches()
				time.Sleep(time.Minute)
				s.heardOnly(t, v1alpha1.ReasonBadAnswer, "watch services: there are too many objects (spec.limits.answerMiB)")
				s.mu.Lock()
				defer s.mu.Unlock()
				if n := len(s.have); n < 300 || n > 400 { // 4 MiB
					t.Errorf("%d services are kept", n)
				}
			})
		})
	}
}

// A cluster's own message is told in part if it is long, and without what a terminal would obey.
func TestLongMessage(t *testing.T) {
	bothWays(t, func(t *testing.T, f *fakeAPI) {
		f.setFault(statusFault(http.StatusInternalServerError, metav1.StatusReasonInternalError, "no\x1b[2J leader"+strings.Repeat("!", 500_000)))
		s := f.follow(t, nil)
		time.Sleep(time.Minute)
		heard := s.heard()
		if len(heard) == 0 {
			t.Fatal("no contact")
		}
		for _, err := range heard {
			if text := err.Error(); len(text) > 1<<10 || !strings.Contains(text, "no [2J leader!!!") || !strings.HasSuffix(text, "!…") {
				t.Errorf("%d bytes: %.100q", len(text), text)
			}
			if status := apierrors.APIStatus(nil); errors.As(err, &status) {
				t.Error("the whole answer is kept")
			}
		}
	})
}

// What is refused as a stream is not asked for in pages as well.
func TestRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeAPI(t)
		f.setFault(statusFault(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
		f.follow(t, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if asked := f.asked(); slices.Contains(asked, "/api/v1/services") || !slices.Contains(asked, "/api/v1/services watch") {
			t.Errorf("asked %v", asked)
		}
	})
}

// A stream of the objects that there are is a part of them until it says that these were all.
func TestPartOfAStream(t *testing.T) {
	for name, end := range map[string]func(){"ends": func() {}, "breaks": func() { panic(http.ErrAbortHandler) }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeAPI(t)
				f.put(newService("a/one"), newService("a/two"))
				f.setFault(ofServices(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Query().Get("sendInitialEvents") == "" {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					o := typed(newService("a/one"))
					o.SetResourceVersion("101")
					send(w, map[string]any{"type": "ADDED", "object": o})
					flush(w)
					end()
					return true
				}))
				s := f.follow(t, nil)
				time.Sleep(time.Minute)
				want(t, "given", s.took(), "")
				s.heardOnly(t, map[string]string{"ends": v1alpha1.ReasonBadAnswer, "breaks": v1alpha1.ReasonUnreachable}[name], "watch services: ")
				f.setFault(nil)
				time.Sleep(time.Minute)
				want(t, "well again", s.took(), "replace a/one a/two")
			})
		})
	}
}

package openstack

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/internal/source/cloud"
	lab "fairlead.dev/lab/openstack"
)

type fault func(http.ResponseWriter, *http.Request) bool

// answer answers all requests of a path with a status and a body.
func answer(path string, status int, body string) fault {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, path) {
			return false
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	}
}

// While a cloud is at fault, its services stay as they were; the sink is told the class of
// the error. Afterwards everything is read, and the sink gets the complete list.
func TestFaults(t *testing.T) {
	const list = "/lbaas/loadbalancers"
	for _, c := range []struct {
		name  string
		fault fault
		want  string // of the contact; a prefix
	}{
		{"401", answer("/", 401, `{"error": {"message": "The request you have made requires authentication."}}`), "Unauthorized: sign in at http://cloud.example/identity/v3/: 401 Unauthorized: The request you have made requires authentication."},
		{"403", answer(list, 403, `{"faultstring": "Policy does not allow this request to be performed."}`), "Forbidden: GET /load-balancer/v2.0/lbaas/loadbalancers: 403 Forbidden: Policy does not allow this request to be performed."},
		{"429", answer(list, 429, ``), "Throttled: GET /load-balancer/v2.0/lbaas/loadbalancers: 429 Too Many Requests"},
		{"500", answer(list, 500, `<html>`), "ServerError: GET /load-balancer/v2.0/lbaas/loadbalancers: 500 Internal Server Error"},
		{"503 with a long page", answer(list, 503, `{"faultstring":"`+strings.Repeat("x", 5000)+`"}`), "ServerError: GET /load-balancer/v2.0/lbaas/loadbalancers: 503 Service Unavailable: " + strings.Repeat("x", 300) + "..."},
		{"404", answer(list, 404, ``), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: not found: 404 Not Found"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, list) {
				return false
			}
			http.Redirect(w, r, "http://elsewhere.example/", http.StatusFound)
			return true
		}, "BadAnswer: Get \"http://elsewhere.example/\": http://cloud.example redirects to http://elsewhere.example: redirects to another host are not followed"},
		{"no list", answer(list, 200, `{}`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: the answer has no loadbalancers"},
		{"null", answer(list, 200, `{"loadbalancers": null}`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: the answer has no loadbalancers"},
		{"another type", answer(list, 200, `{"loadbalancers": [{"id": 5}]}`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: loadbalancers: json: cannot unmarshal number"},
		{"no ID", answer(list, 200, `{"loadbalancers": [{"name": "web"}]}`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: entry 0 of loadbalancers has no id"},
		{"a page for people", answer(list, 200, `<html>`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: the answer is not the JSON that was expected: invalid character '<'"},
		{"half an answer", answer(list, 200, `{"loadbalancers": [{"id": "5`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: the answer is not the JSON that was expected: unexpected EOF"},
		{"two answers", answer(list, 200, `{"loadbalancers": []} {}`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: the answer is not the JSON that was expected: there is more after the JSON"},
		{"a catalog without end", answer("/auth/tokens", 201, `{"token":{"catalog":[`+strings.Repeat("[],", signInBytes/3)), "BadAnswer: sign in at http://cloud.example/identity/v3/: a part of the answer is larger than 1 MiB"},
		{"connection lost", func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, "Unreachable: Get \"http://cloud.example/load-balancer/v2.0/lbaas/loadbalancers?"},
		{"hanging", func(_ http.ResponseWriter, r *http.Request) bool {
			<-r.Context().Done()
			return true
		}, "Timeout: Get \"http://cloud.example/load-balancer/v2.0/lbaas/loadbalancers?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := lab.NewSimulated()
				sim.Seed("team01", 2, 1)
				s := start(t, sim, adminCloud, nil)
				time.Sleep(2 * time.Minute)
				before := s.texts()
				_, replaced, _ := s.state()
				s.take()

				sim.Fault(c.fault)
				if strings.Contains(c.want, "sign in") {
					sim.Expire()
				}
				time.Sleep(40 * time.Second)
				if contact, _, _ := s.state(); !strings.HasPrefix(contact, c.want) {
					t.Errorf("contact is\n  %s\nwant\n  %s", contact, c.want)
				}
				sim.Requests()
				time.Sleep(20 * time.Minute)
				n := 0
				for _, count := range sim.Requests() {
					n += count
				}
				if n < 15 || n > 200 {
					t.Errorf("%d requests in 20 minutes of the fault", n)
				}
				if _, now, _ := s.state(); now != replaced || s.texts() != before {
					t.Errorf("during the fault: %d complete lists, then %s", now-replaced, s.texts())
				}

				sim.Seed("team02", 1, 1)
				sim.Fault(nil)
				time.Sleep(2 * time.Minute)
				if contact, now, _ := s.state(); contact != "ok" || now == replaced || !strings.Contains(s.texts(), "team02-0") {
					t.Errorf("afterwards: %s, %d complete lists, %s", contact, now-replaced, s.texts())
				}
			})
		})
	}
}

// A token that ends is no failure, however often it happens.
func TestExpiredTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		sim.Seed("team01", 1, 1)
		sim.TokenTime = time.Minute
		s := start(t, sim, adminCloud, nil)
		time.Sleep(3 * time.Second)
		s.take()
		sim.Requests()
		time.Sleep(time.Hour)
		s.take2(t, "replace 1", 6) // full sweeps
		if n := sim.Requests()["POST auth/tokens"]; n != 60 && n != 59 {
			t.Errorf("signed in %d times in an hour", n)
		}
	})
}

// take2 compares the log since the last call with one line several times.
func (s *sink) take2(t *testing.T, line string, times int) {
	t.Helper()
	log := s.take()
	if len(log) < times-1 || len(log) > times+1 {
		t.Errorf("%d lines, not about %d: %v", len(log), times, log)
	}
	for _, l := range log {
		if l != line {
			t.Errorf("got %s, want %s", l, line)
		}
	}
}

// Credentials that are refused for hours work again once the cloud accepts them.
func TestRefusedCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		sim.Seed("team01", 1, 1)
		sim.Password("admin", "another")
		s := start(t, sim, adminCloud, nil)
		time.Sleep(3 * time.Hour)
		contact, replaced, puts := s.state()
		const want = "Unauthorized: sign in at http://cloud.example/identity/v3/: 401 Unauthorized: The request you have made requires authentication."
		if contact != want || replaced != 0 || puts != 0 {
			t.Errorf("got %s, %d lists, %d services", contact, replaced, puts)
		}
		if n := sim.Requests()["POST auth/tokens"]; n < 100 || n > 220 {
			t.Errorf("tried %d times in three hours", n)
		}
		sim.Password("admin", "secret")
		time.Sleep(90 * time.Second)
		if contact, replaced, _ := s.state(); contact != "ok" || replaced == 0 {
			t.Errorf("afterwards %s, %d complete lists", contact, replaced)
		}
	})
}

// The cloud says how long it wants to be left alone.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		sim.Seed("team01", 1, 1)
		s := start(t, sim, adminCloud, nil)
		time.Sleep(time.Minute)
		sim.Fault(func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", "120")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		})
		time.Sleep(10 * time.Second)
		sim.Requests()
		sim.Fault(nil)
		time.Sleep(100 * time.Second)
		if n := len(sim.Requests()); n != 0 {
			t.Errorf("%d kinds of requests within Retry-After", n)
		}
		time.Sleep(time.Minute)
		if contact, _, _ := s.state(); contact != "ok" {
			t.Error(contact)
		}
	})
}

// A load balancer that cannot be read stays as it was, says so, and delays no other.
func TestOneUnreadable(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(http.ResponseWriter, *http.Request)
		want  string
	}{
		{"500", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500 Internal Server Error"},
		{"hanging", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "no answer within 30s"},
		{"1 GB", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"members":[]` + strings.Repeat(" ", 2<<20) + `}`))
		}, "the answer is larger than 1 MiB (spec.limits.answerMiB)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := lab.NewSimulated()
				ids := sim.Seed("team01", 20, 1)
				s := start(t, sim, adminCloud, func(cfg *Config) { cfg.AnswerBytes = 1 << 20 })
				time.Sleep(2 * time.Minute)
				bad := s.poolsOf(ids[0])[0]
				sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.Contains(r.URL.Path, bad+"/members") {
						return false
					}
					c.fault(w, r)
					return true
				})
				sim.Edit("members", "", func(m map[string]any) { m["weight"] = 7 })
				for _, id := range ids {
					sim.Touch(id)
				}
				time.Sleep(10 * time.Second)
				if n := strings.Count(s.texts(), "*7"); n != 19 {
					t.Errorf("after 10 s %d of the other 19 changes arrived", n)
				}
				time.Sleep(5 * time.Minute)
				got := shape(s.get(ids[0]))
				if !strings.HasPrefix(got, "port-80/TCP=10.0.0.1:8080; !Answer load balancer "+ids[0]+" (team01-0): it is in effect as it was last read: ") || !strings.HasSuffix(got, c.want) {
					t.Errorf("got %s\nwant ...%s", got, c.want)
				}
				if contact, _, _ := s.state(); contact != "ok" {
					t.Errorf("the cloud counts as unreachable: %s", contact)
				}
				sim.Fault(nil)
				time.Sleep(2 * time.Minute)
				if got := shape(s.get(ids[0])); got != "port-80/TCP=10.0.0.1:8080*7" {
					t.Errorf("afterwards %s", got)
				}
			})
		})
	}
}

// Without one load balancer the first list is not complete: what is stored of it must stay.
func TestNeverReadable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		ids := sim.Seed("team01", 3, 1)
		var bad string
		sim.Edit("pools", "", func(p map[string]any) {
			if p["load_balancer_id"] == ids[1] {
				bad = p["id"].(string)
			}
		})
		sim.Fault(answer(bad+"/members", 500, ""))
		s := start(t, sim, adminCloud, nil)
		time.Sleep(30 * time.Minute)
		contact, replaced, puts := s.state()
		want := "ServerError: load balancer " + ids[1] + ": GET /load-balancer/v2.0/lbaas/pools/" + bad + "/members: 500 Internal Server Error"
		if contact != want || replaced != 0 || puts != 2 {
			t.Errorf("got %s, %d complete lists, %d services\nwant %s", contact, replaced, puts, want)
		}
		sim.Fault(nil)
		time.Sleep(2 * time.Minute)
		if contact, replaced, puts := s.state(); contact != "ok" || replaced == 0 || puts != 3 {
			t.Errorf("afterwards %s, %d complete lists, %d services", contact, replaced, puts)
		}
	})
}

func TestPaging(t *testing.T) {
	const list = "/lbaas/loadbalancers"
	page := func(ids, links string) string {
		return `{"loadbalancers": [` + ids + `], "loadbalancers_links": [` + links + `]}`
	}
	row := func(id string) string {
		return `{"id":"` + id + `","project_id":"p","provisioning_status":"ACTIVE"}`
	}
	const next = `{"rel":"next","href":"http://internal:9876/v2/lbaas/loadbalancers?marker=a"}`
	for _, c := range []struct {
		name      string
		pageLimit int
		fault     fault
		contact   string
		services  int // in the complete list; -1: there is none
	}{
		{"small pages", 7, nil, "ok", 30},
		{"pages just as large as the list", 30, nil, "ok", 30},
		{"pages of one", 1, nil, "ok", 30},
		{"a loop of pages", 0, answer(list, 200, page(row("a"), next)), "BadAnswer: GET loadbalancers: page 2 has nothing new, and a link to one more", -1},
		{"a link without marker", 0, answer(list, 200, page(row("a"), `{"rel":"next","href":"/v2/lbaas/loadbalancers"}`)), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: the link to the next page has no marker", -1},
		{"an empty page with a link", 0, answer(list, 200, page("", next)), "ok", 0},
		{"links of another type", 0, answer(list, 200, `{"loadbalancers": [], "loadbalancers_links": {}}`), "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: loadbalancers_links: json: cannot unmarshal object into Go value of type []struct { Rel string; Href string }", -1},
		{"a second page that fails", 20, func(w http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.URL.Path, list) && r.URL.Query().Get("marker") != "" && answer(list, 502, "")(w, r)
		}, "ServerError: GET /load-balancer/v2.0/lbaas/loadbalancers: 502 Bad Gateway", -1},
		{"a second page of which the marker is gone", 20, func(w http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.URL.Path, list) && r.URL.Query().Get("marker") != "" && answer(list, 400, `{"faultstring":"The marker is invalid."}`)(w, r)
		}, "BadAnswer: GET /load-balancer/v2.0/lbaas/loadbalancers: 400 Bad Request: The marker is invalid.", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := lab.NewSimulated()
				sim.Seed("team01", 30, 1)
				sim.PageLimit = c.pageLimit
				sim.Fault(c.fault)
				s := start(t, sim, adminCloud, nil)
				time.Sleep(20 * time.Second)
				contact, replaced, _ := s.state()
				services := len(s.all())
				if replaced == 0 {
					services = -1
				}
				if contact != c.contact || services != c.services {
					t.Errorf("got %s, %d services\nwant %s, %d", contact, services, c.contact, c.services)
				}
			})
		})
	}
}

// A load balancer that two pages or two entries name counts once, in its first form.
func TestDuplicateIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		id := sim.Seed("team01", 1, 1)[0]
		project := sim.Project("team01")
		row := func(name string) string {
			return fmt.Sprintf(`{"id":"%s","name":"%s","project_id":"%s","provisioning_status":"ACTIVE","updated_at":"1999-01-01T00:00:00"}`, id, name, project)
		}
		sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "/loadbalancers") && answer("", 200, `{"loadbalancers":[`+row("first")+`,`+row("second")+`]}`)(w, r)
		})
		s := start(t, sim, adminCloud, nil)
		time.Sleep(10 * time.Second)
		if got := s.texts(); got != "team01 first port-80/TCP=10.0.0.1:8080" {
			t.Errorf("got %s", got)
		}
	})
}

// The catalog decides where tokens are sent.
func TestCatalog(t *testing.T) {
	for _, c := range []struct {
		name, clouds string
		allow        cloud.Allow
		want         string
	}{
		{"another region", adminCloud + "    region_name: Mars\n", cloud.Allow{PlainHTTP: true}, "BadAnswer: sign in at http://cloud.example/identity/v3/: the catalog has no endpoint of type load-balancer with interface public in region Mars, but public in RegionOne"},
		{"another interface", adminCloud + "    interface: internal\n", cloud.Allow{PlainHTTP: true}, "BadAnswer: sign in at http://cloud.example/identity/v3/: the catalog has no endpoint of type load-balancer with interface internal, but public in RegionOne"},
		{"plain HTTP", strings.Replace(adminCloud, "http:", "https:", 1), cloud.Allow{}, "BadAnswer: sign in at https://cloud.example/identity/v3/: the catalog's endpoint http://cloud.example/load-balancer is refused, since tokens are sent there: --upstream-allow does not name plain-http"},
		{"an endpoint of the credentials", adminCloud + "    region_name: Mars\n    load_balancer_endpoint_override: http://cloud.example/load-balancer/v2\n", cloud.Allow{PlainHTTP: true}, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, lab.NewSimulated(), c.clouds, func(cfg *Config) { cfg.Allow = c.allow })
				time.Sleep(5 * time.Second)
				if contact, _, _ := s.state(); contact != c.want {
					t.Errorf("got  %s\nwant %s", contact, c.want)
				}
			})
		})
	}
}

// What is kept of a sign-in for each project has a bound.
func TestSignInBounds(t *testing.T) {
	for _, c := range []struct{ name, token, url, want string }{
		{"a long token", strings.Repeat("t", 17<<10), "http://cloud.example", "the token is longer than 16 KiB"},
		{"a long endpoint", "t", "http://cloud.example/" + strings.Repeat("x", 3<<10), "the catalog's endpoint is longer than 2 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := lab.NewSimulated()
				sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasSuffix(r.URL.Path, "/auth/tokens") {
						return false
					}
					w.Header().Set("X-Subject-Token", c.token)
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write([]byte(`{"token":{"catalog":[{"type":"load-balancer","endpoints":[{"interface":"public","region":"r","url":"` + c.url + `"}]}]}}`))
					return true
				})
				s := start(t, sim, adminCloud, nil)
				time.Sleep(5 * time.Second)
				if contact, _, _ := s.state(); contact != "BadAnswer: sign in at http://cloud.example/identity/v3/: "+c.want {
					t.Errorf("%s, want %s", contact, c.want)
				}
			})
		})
	}
}

// Lists of members that lack those that the pools name empty nothing.
func TestLostMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		ids := sim.Seed("team01", 3, 2)
		s := start(t, sim, adminCloud, nil)
		time.Sleep(5 * time.Second)
		s.take()
		sim.Fault(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/members") {
				return false
			}
			_, _ = w.Write([]byte(`{"members":[]}`))
			return true
		})
		for _, id := range ids {
			sim.Touch(id)
		}
		time.Sleep(time.Minute)
		// All have changed, so a full sweep reads them and ends with the complete list.
		lines := slices.DeleteFunc(s.take(), func(line string) bool { return line == "replace 3" })
		for _, line := range lines {
			if !strings.Contains(line, ".2:8080") || !strings.Contains(line, "its parts contradict each other: member ") {
				t.Error(line)
			}
		}
		if len(lines) != 3 {
			t.Errorf("%d puts", len(lines))
		}
		sim.Fault(nil)
		time.Sleep(2 * time.Minute)
		for _, line := range s.take() {
			if strings.Contains(line, "contradict") || strings.HasPrefix(line, "put") && !strings.Contains(line, ".2:8080") {
				t.Error(line)
			}
		}
	})
}

// Load balancers that change while they are read are read until they hold still.
func TestTornReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		id := sim.Seed("team01", 1, 1)[0]
		s := start(t, sim, adminCloud, nil)
		time.Sleep(2 * time.Minute)
		s.take()
		// After the listeners are read, their pool is replaced by another.
		changes := 0
		sim.Fault(func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasSuffix(r.URL.Path, "/lbaas/pools") && r.URL.Query().Get("loadbalancer_id") != "" && changes < 2 {
				changes++
				time.Sleep(time.Second)
				name := fmt.Sprintf("pool-%d", changes)
				sim.Edit("listeners", "", func(l map[string]any) { l["default_pool_id"] = name })
				sim.RenamePool(id, name)
				sim.Touch(id)
			}
			return false
		})
		sim.Edit("members", "", func(m map[string]any) { m["weight"] = 2 })
		sim.Touch(id)
		time.Sleep(30 * time.Second)
		s.want(t, "put team01 team01-0 port-80/TCP=10.0.0.1:8080*2")
		if changes != 2 {
			t.Errorf("%d changes", changes)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good, err := ParseClouds([]byte(passwordCloud), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"authorities", func(c *Config) { c.Authorities = []byte("no PEM") }, "InvalidCredentials: ca.crt holds no certificate in PEM"},
		{"verify", func(c *Config) { c.Credentials.Insecure = true }, "InvalidCredentials: verify: false is refused: the plane's --upstream-allow does not name insecure"},
		{"broker without TLS", func(c *Config) { c.Notifications = "amqp://u:p@rabbit" }, "InvalidCredentials: notifications: rabbit without TLS (amqp://) is refused: --upstream-allow does not name plain-http"},
		{"broker of another protocol", func(c *Config) { c.Notifications = "https://u:p@rabbit" }, "InvalidCredentials: notifications: it must begin with amqps:// or amqp:// and a host"},
		{"broker with files", func(c *Config) { c.Notifications = "amqps://u:p@rabbit?cacertfile=/etc/shadow" }, "InvalidCredentials: notifications: the URL must have no query or fragment"},
		{"missing file", func(c *Config) { c.Credentials.CACert, c.Allow.Files = "/nonexistent", true }, "InvalidCredentials: cacert: open /nonexistent: no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Name: "up01", Credentials: good, Sink: newSink(), Log: testLog}
			c.change(&cfg)
			_, err := New(cfg)
			if got := fmt.Sprintf("%s: %v", cloud.ReasonOf(err), err); err == nil || got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

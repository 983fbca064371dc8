package openstack

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead.dev/api/v1alpha1"
	lab "fairlead.dev/lab/openstack"
)

// want compares the log since the last call.
func (c *simulated) want(t *testing.T, lines ...string) {
	t.Helper()
	synctest.Wait()
	if got := c.take(); !slices.Equal(got, lines) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
}

// poolsOf are the IDs of a load balancer's pools.
func (c *simulated) poolsOf(lb string) []string {
	var ids []string
	c.Edit("pools", "", func(p map[string]any) {
		if p["load_balancer_id"] == lb {
			ids = append(ids, p["id"].(string))
		}
	})
	return ids
}

// send changes something through the API of the cloud, as an administrator.
func (c *simulated) send(t *testing.T, method, path, body string) {
	t.Helper()
	status, text := c.try(t, method, path, body)
	if status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
}

func (c *simulated) try(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	current, err := c.source.client.sessions.get(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, current.balancers+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", current.token)
	resp, err := inMemory{c.Simulated}.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	text := new(strings.Builder)
	_ = resp.Write(text)
	return resp.StatusCode, text.String()
}

func TestChangesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		ids := cloud.Seed("team01", 2, 2)
		c := start(t, cloud, adminCloud, nil)
		synctest.Wait()
		if log := c.take(); len(log) != 4 || log[3] != "replace 2" {
			t.Errorf("got %v", log)
		}
		if got, want := c.texts(), "team01 team01-0 port-80/TCP=10.0.0.1:8080 10.0.0.2:8080\nteam01 team01-1 port-80/TCP=10.0.1.1:8080 10.0.1.2:8080"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		time.Sleep(time.Minute) // what was new is old now
		c.want(t)

		pool := c.poolsOf(ids[0])[0]
		began := time.Now()
		c.send(t, "POST", "pools/"+pool+"/members", `{"member":{"address":"10.9.9.9","protocol_port":80,"weight":3}}`)
		for _, _, puts := c.state(); puts == 2 && time.Since(began) < 5*time.Second; _, _, puts = c.state() {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		if lag := time.Since(began); lag > 1100*time.Millisecond {
			t.Errorf("a new member was seen after %s", lag)
		}
		c.want(t, "put team01 team01-0 port-80/TCP=10.9.9.9:80*3 10.0.0.1:8080 10.0.0.2:8080")
		time.Sleep(5 * time.Second)
		c.want(t) // the end of the change changes nothing more

		var member string
		c.Edit("members", "", func(m map[string]any) {
			if m["address"] == "10.0.0.1" {
				member = m["id"].(string)
			}
		})
		c.send(t, "PUT", "pools/"+pool+"/members/"+member, `{"member":{"weight":0}}`)
		time.Sleep(5 * time.Second)
		c.want(t, "put team01 team01-0 port-80/TCP=10.9.9.9:80*3 10.0.0.1:8080(draining) 10.0.0.2:8080")
		c.send(t, "PUT", "pools/"+pool+"/members/"+member, `{"member":{"weight":2,"admin_state_up":false}}`)
		time.Sleep(5 * time.Second)
		c.want(t, "put team01 team01-0 port-80/TCP=10.9.9.9:80*3 10.0.0.1:8080*2(down) 10.0.0.2:8080")
		c.send(t, "DELETE", "pools/"+pool+"/members/"+member, ``)
		time.Sleep(5 * time.Second)
		c.want(t, "put team01 team01-0 port-80/TCP=10.9.9.9:80*3 10.0.0.2:8080")

		cloud.ChangeTime = 3 * time.Second // longer than from one poll to the next
		c.send(t, "DELETE", "loadbalancers/"+ids[1]+"?cascade=true", ``)
		time.Sleep(5 * time.Second)
		c.want(t, "remove "+ids[1]) // seen while it is PENDING_DELETE

		c.Forget(ids[0]) // without a trace
		time.Sleep(40 * time.Second)
		c.want(t, "replace 0")
	})
}

func TestEveryPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		lb := cloud.Seed("team01", 1, 1)[0]
		c := start(t, cloud, adminCloud, nil)
		time.Sleep(time.Minute)
		c.take()
		c.send(t, "POST", "pools", `{"pool":{"loadbalancer_id":"`+lb+`","protocol":"HTTP","name":"blue","members":[{"address":"10.1.1.1","protocol_port":80}]}}`)
		time.Sleep(5 * time.Second)
		c.want(t) // nothing leads there
		pools := c.poolsOf(lb)
		var listener, blue string
		c.Edit("listeners", "", func(l map[string]any) {
			listener = l["id"].(string)
			blue = pools[0]
			if blue == l["default_pool_id"] {
				blue = pools[1]
			}
		})
		c.send(t, "POST", "l7policies", `{"l7policy":{"listener_id":"`+listener+`","action":"REDIRECT_TO_POOL","redirect_pool_id":"`+blue+`"}}`)
		time.Sleep(5 * time.Second)
		c.want(t, "put team01 team01-0 pool port-80/TCP=10.1.1.1:80")
		s := c.get(blue)
		if s == nil || s.Object != "pool "+blue+" of load balancer "+lb+" (team01-0)" {
			t.Errorf("got %+v", s)
		}
		c.Edit("l7policies", "", func(p map[string]any) { lb = p["id"].(string) })
		c.send(t, "DELETE", "l7policies/"+lb, ``)
		time.Sleep(5 * time.Second)
		c.want(t, "remove "+blue)
	})
}

// At rest a cloud is asked less than 90 times a minute, whatever it has.
func TestRequestsAtRest(t *testing.T) {
	for _, c := range []struct {
		balancers int
		api       v1alpha1.OpenStackAPI
		most      int
	}{{10, v1alpha1.OpenStackOctavia, 75}, {2000, v1alpha1.OpenStackOctavia, 90}, {10, v1alpha1.OpenStackLBaaSv2, 35}} {
		t.Run(fmt.Sprint(c.balancers, c.api), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := lab.NewSimulated()
				cloud.Seed("team01", c.balancers, 2)
				s := start(t, cloud, adminCloud, func(cfg *Config) { cfg.API = c.api })
				time.Sleep(5 * time.Minute)
				if _, replaced, puts := s.state(); replaced == 0 || puts != c.balancers {
					t.Fatalf("after 5 minutes: %d services, %d complete lists", puts, replaced)
				}
				cloud.Requests()
				const minutes = 15
				time.Sleep(minutes * time.Minute)
				all := 0
				requests := cloud.Requests()
				for _, n := range requests {
					all += n
				}
				if all/minutes > c.most {
					t.Errorf("%d requests a minute, more than %d: %v in %d minutes", all/minutes, c.most, requests, minutes)
				}
				if _, _, puts := s.state(); puts != c.balancers {
					t.Errorf("%d services were given again although nothing changed", puts-c.balancers)
				}
			})
		})
	}
}

// A change within the second of an earlier one does not show in updated_at.
func TestChangeWithinTheSameSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		lb := cloud.Seed("team01", 1, 1)[0]
		c := start(t, cloud, adminCloud, func(cfg *Config) { cfg.PollInterval = 200 * time.Millisecond })
		time.Sleep(time.Hour)
		c.take()
		member := func(weight int) {
			c.Edit("members", "", func(m map[string]any) { m["weight"] = weight })
			c.Touch(lb)
		}
		member(5)
		time.Sleep(400 * time.Millisecond)
		c.want(t, "put team01 team01-0 port-80/TCP=10.0.0.1:8080*5")
		member(6)
		time.Sleep(2 * time.Second)
		c.want(t, "put team01 team01-0 port-80/TCP=10.0.0.1:8080*6")
	})
}

// More changes than fit into one poll are all found by it.
func TestManyChangesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		ids := cloud.Seed("team01", 70, 1)
		c := start(t, cloud, adminCloud, func(cfg *Config) { cfg.SweepInterval, cfg.RequestsPerSecond = time.Hour, 1000 })
		time.Sleep(time.Hour / 2)
		c.Edit("members", "", func(m map[string]any) { m["weight"] = 7 })
		for _, id := range ids[:50] {
			c.Touch(id)
		}
		time.Sleep(5 * time.Second)
		if _, _, puts := c.state(); puts < 70+50 { // much has changed: a sweep may find the others, too
			t.Errorf("%d changes were seen, not 50", puts-70)
		}
	})
}

// Changes of one second are all found by polls, also if one of them sees only the first.
func TestChangesOfTheSecondOfAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		ids := cloud.Seed("team01", 70, 1)
		c := start(t, cloud, adminCloud, func(cfg *Config) {
			cfg.PollInterval, cfg.SweepInterval, cfg.RequestsPerSecond = 400*time.Millisecond, time.Hour, 1000
		})
		time.Sleep(time.Hour/2 + 10*time.Millisecond)
		c.Edit("members", "", func(m map[string]any) { m["weight"] = 7 })
		for _, some := range [][]string{ids[:20], ids[20:50]} {
			for _, id := range some {
				c.Touch(id)
			}
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		if _, _, puts := c.state(); puts != 70+50 {
			t.Errorf("%d changes were seen, not 50", puts-70)
		}
	})
}

// What much of a cloud has lost comes as a complete list, which is judged as a whole, and not one by one.
func TestLossComesAsAList(t *testing.T) {
	for name, touch := range map[string]bool{"old rows": false, "new rows": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := lab.NewSimulated()
				ids := cloud.Seed("team01", 30, 1)
				cloud.Edit("members", "", func(m map[string]any) { m["provisioning_status"] = "DELETED" })
				empty := cloud.Backup()
				cloud.Edit("members", "", func(m map[string]any) { m["provisioning_status"] = "ACTIVE" })
				time.Sleep(time.Hour)
				for _, id := range ids {
					cloud.Touch(id)
				}
				c := start(t, cloud, adminCloud, nil)
				time.Sleep(time.Minute + 10*time.Millisecond) // between two polls
				if !strings.Contains(c.texts(), "team01-29 port-80/TCP=10.0.29.1:8080") {
					t.Fatalf("before: %s", c.texts())
				}
				c.take()
				cloud.Restore(empty)
				if touch {
					for _, id := range ids {
						cloud.Touch(id)
					}
				}
				time.Sleep(time.Minute)
				if log := c.take(); slices.ContainsFunc(log, func(line string) bool { return strings.HasPrefix(line, "put ") }) {
					t.Errorf("it came one by one: %v", log)
				}
				if strings.Contains(c.texts(), "10.0.29.1") || len(c.all()) != 30 {
					t.Errorf("after: %s", c.texts())
				}
				ids = cloud.Seed("team02", 1, 1) // one by one as before
				time.Sleep(5 * time.Second)
				if c.get(ids[0]) == nil {
					t.Errorf("a change after it did not come: %v", c.take())
				}
			})
		})
	}
}

// A restored backup has load balancers that changed backwards, and lacks others.
func TestRestoredBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		old := cloud.Seed("team01", 30, 1)
		backup := cloud.Backup()
		time.Sleep(time.Hour)
		more := cloud.Seed("team02", 1, 1)
		cloud.Edit("members", "", func(m map[string]any) { m["weight"] = 9 })
		for _, id := range old {
			cloud.Touch(id)
		}
		c := start(t, cloud, adminCloud, nil)
		time.Sleep(time.Minute)
		if !strings.Contains(c.texts(), "team01-29 port-80/TCP=10.0.29.1:8080*9") || c.get(more[0]) == nil {
			t.Fatalf("before: %s", c.texts())
		}
		c.take()
		cloud.Restore(backup)
		time.Sleep(time.Minute)
		log := c.take()
		if c.get(more[0]) != nil || strings.Contains(c.texts(), "*9") || len(c.all()) != 30 {
			t.Errorf("after: %s", c.texts())
		}
		if !slices.Contains(log, "replace 30") {
			t.Errorf("the loss did not come as a complete list: %v", log)
		}
	})
}

func TestProjects(t *testing.T) {
	for _, c := range []struct {
		name     string
		clouds   string
		projects []string
		want     string // projects whose load balancers are seen
	}{
		{"admin", adminCloud, nil, "team01 team02 team03"},
		{"admin, one by name", adminCloud, []string{"team02"}, "team02"},
		{"admin, two, one by ID", adminCloud, []string{"team02", "ID of team03"}, "team02 team03"},
		{"admin, none that exists", adminCloud, []string{"team09"}, ""},
		{"member of two", strings.ReplaceAll(strings.ReplaceAll(adminCloud, "project_name: admin", "project_name: team01"), "username: admin", "username: user"), nil, "team01 team02"},
		{"member of two, one wanted", strings.ReplaceAll(strings.ReplaceAll(adminCloud, "project_name: admin", "project_name: team01"), "username: admin", "username: user"), []string{"team02"}, "team02"},
		{"application credential", `clouds: {c: {auth: {auth_url: "http://cloud.example/identity/", application_credential_id: app, application_credential_secret: s}}}`, nil, "team03"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := lab.NewSimulated()
				for _, p := range []string{"team01", "team02", "team03"} {
					cloud.Seed(p, 1, 1)
				}
				cloud.Account(lab.Account{Name: "user", Password: "secret", Projects: []string{"team01", "team02"}})
				cloud.Account(lab.Account{ID: "app", Secret: "s", Projects: []string{"team03"}})
				projects := slices.Clone(c.projects)
				if at := slices.Index(projects, "ID of team03"); at >= 0 {
					projects[at] = cloud.Project("team03")
				}
				s := start(t, cloud, c.clouds, func(cfg *Config) { cfg.Projects = projects })
				time.Sleep(time.Minute)
				var got []string
				for _, service := range s.all() {
					got = append(got, service.ScopeName)
				}
				slices.Sort(got)
				if contact, replaced, _ := s.state(); strings.Join(got, " ") != c.want || contact != "ok" || replaced == 0 {
					t.Errorf("got %q, %s, %d complete lists; want %q", got, contact, replaced, c.want)
				}
				// A change arrives by polling, in each of the projects.
				cloud.Edit("members", "", func(m map[string]any) { m["weight"] = 7 })
				cloud.Edit("loadbalancers", "", func(lb map[string]any) { lb["updated_at"] = time.Now().UTC().Format("2006-01-02T15:04:05") })
				time.Sleep(5 * time.Second)
				if n := strings.Count(s.texts(), "*7"); n != len(got) {
					t.Errorf("the change arrived in %d projects: %s", n, s.texts())
				}
			})
		})
	}
}

// The project of a load balancer may be newer than the list of projects.
func TestNewProject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		c := start(t, cloud, adminCloud, nil)
		time.Sleep(time.Minute)
		cloud.Seed("team07", 1, 1)
		time.Sleep(2 * time.Second)
		if got := c.texts(); got != "team07 team07-0 port-80/TCP=10.0.0.1:8080" {
			t.Errorf("got %s", got)
		}
	})
}

func TestLBaaSv2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cloud := lab.NewSimulated()
		ids := cloud.Seed("team01", 2, 2)
		c := start(t, cloud, adminCloud, func(cfg *Config) { cfg.API = v1alpha1.OpenStackLBaaSv2 })
		time.Sleep(time.Minute)
		if got, want := c.texts(), "team01 team01-0 port-80/TCP=10.0.0.1:8080 10.0.0.2:8080\nteam01 team01-1 port-80/TCP=10.0.1.1:8080 10.0.1.2:8080"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		c.take()
		c.Edit("members", "", func(m map[string]any) {
			if m["address"] == "10.0.1.2" {
				m["weight"] = 0
			}
		})
		cloud.Forget(ids[0])
		time.Sleep(40 * time.Second)
		log := c.take()
		if want := "team01 team01-1 port-80/TCP=10.0.1.1:8080 10.0.1.2:8080(draining)"; c.texts() != want || !slices.Contains(log, "replace 1") {
			t.Errorf("got %s, %v; want %s", c.texts(), log, want)
		}
	})
}

package openstack

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	lab "fairlead.dev/lab/openstack"
)

// A cloud of 3,900 projects is read by 3,900 requests for members and some for everything
// else, whatever each answer takes; changes arrive meanwhile.
func TestManyProjects(t *testing.T) {
	if testing.Short() {
		t.Skip("it reads thousands of load balancers")
	}
	synctest.Test(t, func(t *testing.T) {
		sim := lab.NewSimulated()
		const many = 3900
		var last string
		for i := range many {
			last = sim.Seed(fmt.Sprintf("team%04d", i), 1, 2)[0]
		}
		time.Sleep(time.Minute) // what changed just now is read twice
		sim.Latency = 30 * time.Millisecond
		s := start(t, sim, adminCloud, func(cfg *Config) { cfg.RequestsPerSecond = 1000 })
		began := time.Now()
		for _, replaced, _ := s.state(); replaced == 0; _, replaced, _ = s.state() {
			time.Sleep(100 * time.Millisecond)
		}
		took := time.Since(began)
		n := 0
		for _, count := range sim.Requests() {
			n += count
		}
		t.Logf("%d projects in %s, %d requests", many, took, n)
		if took > 20*time.Second || n > many+100 {
			t.Errorf("%s, %d requests", took, n)
		}
		sim.Edit("members", "", func(m map[string]any) {
			if m["load_balancer_id"] == last {
				m["weight"] = 9
			}
		})
		sim.Touch(last)
		time.Sleep(1500 * time.Millisecond)
		if got := shape(s.get(last)); got != "port-80/TCP=10.15.59.1:8080*9 10.15.59.2:8080*9" {
			t.Errorf("after the change: %s", got)
		}
	})
}

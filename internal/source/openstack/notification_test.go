package openstack

import "testing"

func TestNotificationsAboutLoadBalancers(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       bool
	}{
		{"event of the worker", `{"oslo.version": "2.0", "oslo.message": "{\"event_type\": \"octavia.loadbalancer.update.end\", \"payload\": {}}"}`, true},
		{"audit of a change", `{"oslo.message": "{\"event_type\": \"audit.http.response\", \"payload\": {\"action\": \"update\", \"requestPath\": \"/v2.0/lbaas/pools/5c/members\"}}"}`, true},
		{"audit of a read", `{"oslo.message": "{\"event_type\": \"audit.http.response\", \"payload\": {\"action\": \"read/list\", \"requestPath\": \"/v2.0/lbaas/loadbalancers\"}}"}`, false},
		{"audit of a read of one", `{"oslo.message": "{\"event_type\": \"audit.http.response\", \"payload\": {\"action\": \"read\", \"requestPath\": \"/v2.0/lbaas/loadbalancers/5c\"}}"}`, false},
		{"another service", `{"oslo.message": "{\"event_type\": \"compute.instance.create.end\"}"}`, false},
		{"no JSON", "\x00\x01", false},
		{"nothing", "", false},
	} {
		if got := aboutLoadBalancers([]byte(c.body)); got != c.want {
			t.Errorf("%s: %t, not %t", c.name, got, c.want)
		}
	}
}

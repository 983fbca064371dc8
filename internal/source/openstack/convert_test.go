package openstack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

// parsed makes a tree from JSON, with the members of each pool beside it.
func parsed(t *testing.T, text string) *tree {
	t.Helper()
	var in struct {
		LoadBalancer loadBalancer `json:"lb"`
		Listeners    []listener
		Pools        []pool
		Policies     []policy
		Members      map[string][]member
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		t.Fatal(err)
	}
	if in.LoadBalancer.ID == "" {
		in.LoadBalancer.ID = "lb"
	}
	in.LoadBalancer.ProjectID = "p"
	if in.LoadBalancer.ProvisioningStatus == "" {
		in.LoadBalancer.ProvisioningStatus = active
	}
	return &tree{loadBalancer: in.LoadBalancer, listeners: in.Listeners, pools: in.Pools, policies: in.Policies, members: in.Members}
}

const (
	web    = `"listeners":[{"id":"l","protocol":"HTTP","protocol_port":80,"default_pool_id":"a","provisioning_status":"ACTIVE"}],"pools":[{"id":"a","provisioning_status":"ACTIVE"}]`
	backed = web + `,"members":{"a":[{"id":"m","address":"10.0.0.1","protocol_port":8080}]}`
)

func TestConvert(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", `{` + backed + `}`, "lb: port-80/TCP=10.0.0.1:8080"},
		{"being updated", `{"lb":{"provisioning_status":"PENDING_UPDATE"},` + backed + `}`, "lb: port-80/TCP=10.0.0.1:8080"},
		{"being created", `{"lb":{"provisioning_status":"PENDING_CREATE"},` + backed + `}`, ""},
		{"being deleted", `{"lb":{"provisioning_status":"PENDING_DELETE"},` + backed + `}`, ""},
		{"deleted", `{"lb":{"provisioning_status":"DELETED"},` + backed + `}`, ""},
		{"error after it was active", `{"lb":{"provisioning_status":"ERROR"},` + backed + `}`, "lb: port-80/TCP=10.0.0.1:8080"},
		{"error while it was created", `{"lb":{"provisioning_status":"ERROR"},` + strings.ReplaceAll(backed, "ACTIVE", "ERROR") + `}`, ""},
		{"no listener", `{}`, "lb: "},
		{"no pool", `{"listeners":[{"id":"l","protocol":"HTTP","protocol_port":80}]}`, "lb: port-80/TCP="},
		{"no member", `{` + web + `}`, "lb: port-80/TCP="},
		{"lost pool", `{"listeners":[{"id":"l","protocol":"HTTP","protocol_port":80,"default_pool_id":"b"}]}`, "lb: port-80/TCP=; !Answer listener l of load balancer lb: its pool b does not exist"},
		{
			"members", `{` + web + `,"members":{"a":[
				{"id":"1","address":"10.0.0.9","protocol_port":80,"weight":0},
				{"id":"2","address":"10.0.0.2","protocol_port":80,"weight":256,"backup":true},
				{"id":"3","address":"10.0.0.3","protocol_port":80,"admin_state_up":false},
				{"id":"4","address":"10.0.0.4","protocol_port":80,"operating_status":"ERROR"},
				{"id":"5","address":"10.0.0.5","protocol_port":80,"operating_status":"DRAINING"},
				{"id":"6","address":"10.0.0.6","protocol_port":80,"operating_status":"NO_MONITOR","weight":null},
				{"id":"7","address":"10.0.0.7","protocol_port":80,"provisioning_status":"PENDING_DELETE"},
				{"id":"8","address":"10.0.0.8","protocol_port":80,"provisioning_status":"DELETED"},
				{"id":"9","address":"10.0.0.10","protocol_port":8080,"operating_status":"OFFLINE","provisioning_status":"PENDING_CREATE"},
				{"id":"10","address":"2001:db8::1","protocol_port":80},
				{"id":"11","address":"::ffff:10.0.0.11","protocol_port":80}]}}`,
			"lb: port-80/TCP=10.0.0.2:80*256(backup) 10.0.0.3:80(down) 10.0.0.4:80(down) 10.0.0.5:80(draining) 10.0.0.6:80 " +
				"10.0.0.7:80(draining) 10.0.0.9:80(draining) 10.0.0.11:80 [2001:db8::1]:80 10.0.0.10:8080",
		},
		{
			"bad members", `{` + web + `,"members":{"a":[
				{"id":"1","protocol_port":80},
				{"id":"2","address":"web.example","protocol_port":80},
				{"id":"3","address":"fe80::1%eth0","protocol_port":80},
				{"id":"4","address":"10.0.0.4","protocol_port":0},
				{"id":"5","address":"10.0.0.5","protocol_port":65536},
				{"id":"6","address":"10.0.0.6","protocol_port":80,"weight":-1},
				{"id":"7","address":"10.0.0.7","protocol_port":80},
				{"id":"8","address":"10.0.0.7","protocol_port":80,"weight":5}]}}`,
			"lb: port-80/TCP=10.0.0.7:80" +
				"; !NoAddress member 1 of pool a: it has no address" +
				`; !NoAddress member 2 of pool a: "web.example" is no address that other machines can use` +
				`; !NoAddress member 3 of pool a: "fe80::1%eth0" is no address that other machines can use` +
				"; !Port member 4 of pool a: protocol_port is 0, which is no port" +
				"; !Port member 5 of pool a: protocol_port is 65536, which is no port" +
				"; !Answer member 6 of pool a: its weight is -1; it must be at least 0 and at most 65535" +
				"; !Answer member 8 of pool a: member 7 has the address 10.0.0.7:80, too",
		},
		{"load balancer down", `{"lb":{"admin_state_up":false},` + backed + `}`, "lb: port-80/TCP=10.0.0.1:8080(down)"},
		{"listener down", `{` + strings.Replace(backed, `"id":"l"`, `"id":"l","admin_state_up":false`, 1) + `}`, "lb: port-80/TCP=10.0.0.1:8080(down)"},
		{"pool down", `{` + strings.Replace(backed, `{"id":"a"`, `{"id":"a","admin_state_up":false`, 1) + `}`, "lb: port-80/TCP=10.0.0.1:8080(down)"},
		{
			"listeners", `{"listeners":[
				{"id":"1","protocol":"TERMINATED_HTTPS","protocol_port":443,"default_pool_id":"a"},
				{"id":"2","protocol":"UDP","protocol_port":53,"default_pool_id":"a"},
				{"id":"3","protocol":"TCP","protocol_port":53,"default_pool_id":"a"},
				{"id":"4","protocol":"SCTP","protocol_port":9,"default_pool_id":"a"},
				{"id":"5","protocol":"PROMETHEUS","protocol_port":9090},
				{"id":"6","protocol":"QUIC","protocol_port":4433,"default_pool_id":"a"},
				{"id":"7","protocol":"HTTP","protocol_port":0,"default_pool_id":"a"},
				{"id":"8","protocol":"HTTPS","protocol_port":443,"default_pool_id":"a"},
				{"id":"9","protocol":"PROXY","protocol_port":8443,"default_pool_id":"a"},
				{"id":"10","protocol":"HTTP","protocol_port":81,"default_pool_id":"a","provisioning_status":"PENDING_DELETE"}],
			 "pools":[{"id":"a"}],"members":{"a":[{"id":"m","address":"10.0.0.1","protocol_port":8080}]}}`,
			"lb: port-9/SCTP=10.0.0.1:8080; port-53/TCP=10.0.0.1:8080; port-53-udp/UDP=10.0.0.1:8080; port-443/TCP=10.0.0.1:8080; port-8443/TCP=10.0.0.1:8080" +
				"; !Protocol listener 5 of load balancer lb: its protocol is PROMETHEUS: it serves metrics of the load balancer and has no members" +
				`; !Protocol listener 6 of load balancer lb: its protocol is "QUIC"; known are TCP, HTTP, HTTPS, TERMINATED_HTTPS, PROXY, UDP and SCTP` +
				"; !Port listener 7 of load balancer lb: protocol_port is 0, which is no port" +
				"; !Port listener 8 of load balancer lb: listener 1 has port 443, too",
		},
		{
			"policies", `{"listeners":[
				{"id":"1","protocol":"HTTP","protocol_port":80,"default_pool_id":"a"},
				{"id":"2","protocol":"HTTP","protocol_port":81}],
			 "pools":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}],
			 "policies":[
				{"id":"1","action":"REDIRECT_TO_POOL","listener_id":"1","redirect_pool_id":"b"},
				{"id":"2","action":"REDIRECT_TO_POOL","listener_id":"2","redirect_pool_id":"b"},
				{"id":"3","action":"REDIRECT_TO_POOL","listener_id":"2","redirect_pool_id":"a"},
				{"id":"4","action":"REJECT","listener_id":"2"},
				{"id":"5","action":"REDIRECT_TO_POOL","listener_id":"2","redirect_pool_id":"c","provisioning_status":"DELETED"}],
			 "members":{"a":[{"id":"m","address":"10.0.0.1","protocol_port":8080}],"b":[{"id":"n","address":"10.0.0.2","protocol_port":8080}],
				"d":[{"id":"o","address":"10.0.0.3","protocol_port":8080}]}}`,
			"b: port-80/TCP=10.0.0.2:8080; port-81/TCP=10.0.0.2:8080 | lb: port-80/TCP=10.0.0.1:8080; port-81/TCP=",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, s := range convert(parsed(t, c.in), "team01", time.Time{}) {
				got = append(got, s.Key.Name+": "+shape(s))
				names := map[string]bool{}
				for _, slice := range s.Slices {
					if names[slice.Name] {
						t.Errorf("two slices are %s", slice.Name)
					}
					names[slice.Name] = true
				}
			}
			if text := strings.Join(got, " | "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

// A load balancer that fails after it was served goes on being served, whatever its parts say.
func TestConvertFailedLater(t *testing.T) {
	failing := parsed(t, `{"lb":{"provisioning_status":"ERROR"},`+strings.ReplaceAll(backed, "ACTIVE", "ERROR")+`}`)
	failing.served = true
	if got := convert(failing, "", time.Time{}); len(got) != 1 || shape(got[0]) != "port-80/TCP=10.0.0.1:8080" {
		t.Errorf("got %v", got)
	}
}

func TestConvertDescription(t *testing.T) {
	in := parsed(t, `{"lb":{"id":"5c1e","name":"web","updated_at":"2026-11-28T01:02:03","tags":["team=shop","canary","not valid","fairlead.dev/load-balancer-id=x","a=b=c"]},
		"listeners":[{"id":"1","protocol":"HTTP","protocol_port":80}],"pools":[{"id":"7b"}],
		"policies":[{"id":"1","action":"REDIRECT_TO_POOL","listener_id":"1","redirect_pool_id":"7b"}],
		"members":{"7b":[{"id":"m","address":"10.0.0.1","protocol_port":80},{"id":"n","address":"2001:db8::1","protocol_port":80}]}}`)
	seen := time.Date(2026, 11, 28, 1, 2, 4, 0, time.UTC)
	got := convert(in, "team01", seen)
	want := []*model.UpstreamService{
		{Key: model.UpstreamKey{Scope: "p", Name: "5c1e"}, ScopeName: "team01", Object: "load balancer 5c1e (web)", Ports: []model.UpstreamPort{{Name: "port-80", Port: 80, Protocol: "TCP"}}},
		{
			Key: model.UpstreamKey{Scope: "p", Name: "7b"}, ScopeName: "team01", Object: "pool 7b of load balancer 5c1e (web)",
			Ports: []model.UpstreamPort{{Name: "port-80", Port: 80, Protocol: "TCP"}},
		},
	}
	labels := map[string]string{"team": "shop", "canary": "", labelID: "5c1e", labelName: "web"}
	for i, w := range want {
		g := got[i]
		if g.Key != w.Key || g.ScopeName != w.ScopeName || g.Object != w.Object || !slices.Equal(g.Ports, w.Ports) || !maps.Equal(g.Labels, labels) ||
			!g.Changed.Equal(seen.Add(-time.Second)) || !g.Seen.Equal(seen) {
			t.Errorf("got %+v, want %+v with labels %v", g, w, labels)
		}
	}
	var slices []string
	for _, s := range got[1].Slices {
		slices = append(slices, s.Name)
	}
	if strings.Join(slices, " ") != "port-80-80 port-80-80-ipv6" {
		t.Errorf("slices %v", slices)
	}
	in.loadBalancer.Name = "lb:team01-0"
	if got := convert(in, "", seen); got[0].Labels[labelName] != "lb:team01-0" || got[0].Object != "load balancer 5c1e (lb:team01-0)" {
		t.Errorf("a name that no label can be: %+v", got[0])
	}
}

// The work for a load balancer grows with the number of its parts, and not faster: 20,000
// listeners, pools and policies would else take hours.
func TestConvertManyParts(t *testing.T) {
	const many = 20_000
	in := parsed(t, `{}`)
	for i := range many {
		id := fmt.Sprint(i)
		in.listeners = append(in.listeners, listener{ID: id, Protocol: "TCP", ProtocolPort: int64(i + 1)})
		in.pools = append(in.pools, pool{ID: id})
		for range 2 { // two policies of one listener make one port
			in.policies = append(in.policies, policy{ID: id, Action: "REDIRECT_TO_POOL", ListenerID: id, RedirectPoolID: id})
		}
	}
	got := convert(in, "", time.Time{})
	if torn := in.torn(); torn != "" || len(got) != many+1 || len(in.used()) != many+1 {
		t.Errorf("%d services of %d, %s", len(got), many, torn)
	}
	for _, s := range got[:many] {
		if len(s.Ports) != 1 {
			t.Fatalf("%s has the ports %v", s.Key.Name, s.Ports)
		}
	}
}

// A long tag makes no label, and nothing repeats it. A name is given as long as it can be in Octavia.
func TestConvertLongNames(t *testing.T) {
	long := strings.Repeat("n", 255)
	in := loadBalancer{ID: "lb", Name: long, Tags: []string{long, "k=" + long, long + ".example/k=v", "k=v"}}
	if got := labels(&in); !maps.Equal(got, map[string]string{labelID: "lb", labelName: long, "k": "v"}) {
		t.Errorf("labels %v", got)
	}
	in.Name, in.Tags = strings.Repeat("n", 63), []string{strings.Repeat("k", 63) + "=" + strings.Repeat("v", 63)}
	if got := labels(&in); len(got) != 3 {
		t.Errorf("the longest labels are missing: %v", got)
	}
}

// A pool of many listeners takes the memory of its members once. Of what is beyond all bounds the rest is counted.
func TestConvertPoolOfManyListeners(t *testing.T) {
	in := parsed(t, `{"pools":[{"id":"a"}],"members":{}}`)
	for i := range maxServicePorts + 5 {
		in.listeners = append(in.listeners, listener{ID: fmt.Sprint(i), Protocol: "TCP", ProtocolPort: int64(i + 1), DefaultPoolID: "a"})
	}
	for i := range 1000 {
		in.members["a"] = append(in.members["a"], member{ID: fmt.Sprint(i), Address: fmt.Sprintf("10.0.%d.%d", i>>8, i&255), ProtocolPort: 80})
	}
	for i := range 100 {
		in.members["a"] = append(in.members["a"], member{ID: fmt.Sprint("bad", i)})
	}
	s := convert(in, "", time.Time{})[0]
	if len(s.Ports) != maxServicePorts || s.Endpoints() != maxEndpoints {
		t.Errorf("%d ports and %d endpoints", len(s.Ports), s.Endpoints())
	}
	if first, other := s.Slices[0].Endpoints, s.Slices[1].Endpoints; &first[0] != &other[0] {
		t.Error("each listener has endpoints of its own")
	}
	if n := len(s.Refused); n != maxRefusals+1 || s.Refused[n-1].Message != "889 more of its listeners and members are left out" {
		t.Errorf("%d refusals, the last of them %v", n, s.Refused[n-1])
	}
}

// Tenants name load balancers. A name that begins a line, moves the cursor or turns the text is not passed on like this.
func TestConvertUnprintableName(t *testing.T) {
	in := parsed(t, `{"lb":{"id":"5c1e","name":"web)\n\u202eup02, OpenStack\u001b[2J"}}`)
	if got := convert(in, "", time.Time{})[0].Object; got != "load balancer 5c1e (web)  up02, OpenStack [2J)" {
		t.Errorf("%q", got)
	}
}

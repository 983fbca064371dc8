package openstack

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// lbaas answers requests about load balancers and their parts. old: as LBaaS v2.
func (s *Simulated) lbaas(w http.ResponseWriter, r *http.Request, t token, path []string, old bool) {
	collections := map[string]*collection{"loadbalancers": &s.balancers, "listeners": &s.listeners, "pools": &s.pools, "l7policies": &s.policies}
	key, c := path[0], collections[path[0]]
	if len(path) >= 3 && key == "pools" && path[2] == "members" {
		key, c = "members", s.members[path[1]]
		path = path[2:]
	}
	if c == nil {
		notFound(w, r.URL.Path)
		return
	}
	single := map[string]string{"loadbalancers": "loadbalancer", "listeners": "listener", "pools": "pool", "l7policies": "l7policy", "members": "member"}[key]
	var o object
	if len(path) > 1 {
		if o = c.byID[path[1]]; o == nil || !t.admin && o.text("project_id") != t.project.text("id") {
			notFound(w, single+" "+path[1])
			return
		}
	}
	switch r.Method {
	case http.MethodGet:
		if o == nil {
			s.list(w, r, t, key, c, old)
			return
		}
		reply(w, http.StatusOK, object{single: s.show(o, old)})
	case http.MethodDelete:
		lb := o.text("load_balancer_id")
		if key == "loadbalancers" {
			lb = o.text("id")
		}
		if !s.change(w, lb, func() { s.remove(key, o) }) {
			return
		}
		o["provisioning_status"] = "PENDING_DELETE"
		reply(w, http.StatusNoContent, nil)
	case http.MethodPost, http.MethodPut:
		var body map[string]object
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			refuse(w, http.StatusBadRequest, err.Error())
			return
		}
		sent := body[single]
		if r.Method == http.MethodPut {
			if !s.change(w, o.text("load_balancer_id")+map[bool]string{true: o.text("id")}[key == "loadbalancers"], func() {}) {
				return
			}
			maps.Copy(o, sent)
			o["updated_at"] = s.stamp()
			reply(w, http.StatusOK, object{single: s.show(o, old)})
			return
		}
		s.create(w, r, key, single, sent)
	default:
		refuse(w, http.StatusMethodNotAllowed, r.Method)
	}
}

// create makes an object with the parts that it comes with.
func (s *Simulated) create(w http.ResponseWriter, r *http.Request, key, single string, sent object) {
	if key == "loadbalancers" {
		lb := s.balancer(sent)
		lb["provisioning_status"], lb["updated_at"] = "PENDING_CREATE", nil
		s.after(func() { s.active(lb) })
		reply(w, http.StatusCreated, object{single: s.show(lb, false)})
		return
	}
	lb := sent.text("loadbalancer_id")
	switch {
	case key == "members":
		pool := s.pools.byID[poolOf(r.URL.Path)]
		lb = pool.text("load_balancer_id")
	case key == "l7policies":
		lb = s.listeners.byID[sent.text("listener_id")].text("load_balancer_id")
	case lb == "":
		lb = s.listeners.byID[sent.text("listener_id")].text("load_balancer_id")
	}
	var o object
	if !s.change(w, lb, func() {
		if o["provisioning_status"] == "PENDING_CREATE" {
			o["provisioning_status"] = "ACTIVE"
		}
	}) {
		return
	}
	project := s.balancers.byID[lb].text("project_id")
	switch key {
	case "members":
		o = s.member(poolOf(r.URL.Path), project, lb, sent)
	case "l7policies":
		o = s.policy(project, lb, sent)
	case "pools":
		o = s.pool(project, lb, sent)
		if l := s.listeners.byID[sent.text("listener_id")]; l != nil {
			l["default_pool_id"] = o["id"]
		}
	case "listeners":
		o = s.listener(project, lb, sent)
	}
	o["provisioning_status"] = "PENDING_CREATE"
	reply(w, http.StatusCreated, object{single: s.show(o, false)})
}

// poolOf is the ID of the pool in the path of a member.
func poolOf(path string) string {
	var id string
	for rest := path; rest != ""; {
		var part string
		part, rest = cutPath(rest)
		if part == "pools" {
			id, _ = cutPath(rest)
		}
	}
	return id
}

func cutPath(path string) (first, rest string) {
	for len(path) > 0 && path[0] == '/' {
		path = path[1:]
	}
	for i := range path {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return path, ""
}

// change begins a change of a load balancer, which is active again, and done, after the time
// that changes take. It refuses a change during another one, as Octavia does.
func (s *Simulated) change(w http.ResponseWriter, id string, done func()) bool {
	lb := s.balancers.byID[id]
	if lb == nil {
		notFound(w, "Load Balancer "+id)
		return false
	}
	if lb["provisioning_status"] != "ACTIVE" && lb["provisioning_status"] != "ERROR" {
		refuse(w, http.StatusConflict, "Load Balancer "+id+" is immutable and cannot be updated.")
		return false
	}
	lb["provisioning_status"], lb["updated_at"] = "PENDING_UPDATE", s.stamp()
	s.after(func() {
		done()
		s.active(lb)
	})
	return true
}

// after calls f, with the lock held, after the time that changes take.
func (s *Simulated) after(f func()) {
	time.AfterFunc(s.ChangeTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		s.unindex()
	})
}

func (s *Simulated) active(lb object) {
	lb["provisioning_status"], lb["operating_status"], lb["updated_at"] = "ACTIVE", "ONLINE", s.stamp()
}

func (s *Simulated) remove(key string, o object) {
	id := o.text("id")
	switch key {
	case "members":
		for _, c := range s.members {
			if c.byID[id] != nil {
				c.remove(id)
			}
		}
	case "l7policies":
		s.policies.remove(id)
	case "listeners":
		s.listeners.remove(id)
	case "pools":
		s.pools.remove(id)
		delete(s.members, id)
		for _, l := range s.listeners.where("default_pool_id", id) {
			l["default_pool_id"] = nil
		}
	case "loadbalancers":
		for _, p := range s.pools.where("load_balancer_id", id) {
			s.remove("pools", p)
		}
		for _, l := range s.listeners.where("load_balancer_id", id) {
			s.remove("listeners", l)
		}
		for _, p := range s.policies.where("load_balancer_id", id) {
			s.remove("l7policies", p)
		}
		s.balancers.remove(id)
	}
}

// base of an object, with what the request sent.
func (s *Simulated) base(project, lb string, sent object) object {
	now := s.stamp()
	o := object{
		"name": "", "admin_state_up": true, "operating_status": "ONLINE", "provisioning_status": "ACTIVE",
		"created_at": now, "updated_at": now, "tags": []string{},
	}
	maps.Copy(o, sent)
	o["id"], o["project_id"] = s.id(), project
	if lb != "" {
		o["load_balancer_id"] = lb
	}
	for _, part := range []string{"listeners", "pools", "members", "default_pool", "loadbalancer_id"} {
		delete(o, part)
	}
	return o
}

func children(sent object, key string) []object {
	list, _ := sent[key].([]any)
	var all []object
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok {
			all = append(all, m)
		}
	}
	return all
}

func (s *Simulated) balancer(sent object) object {
	lb := s.base(sent.text("project_id"), "", sent)
	s.balancers.add(lb)
	id, project := lb.text("id"), lb.text("project_id")
	for _, p := range children(sent, "pools") {
		s.pool(project, id, p)
	}
	for _, l := range children(sent, "listeners") {
		s.listener(project, id, l)
	}
	return lb
}

func (s *Simulated) listener(project, lb string, sent object) object {
	l := s.base(project, lb, sent)
	if pool, ok := sent["default_pool"].(map[string]any); ok {
		l["default_pool_id"] = s.pool(project, lb, pool)["id"]
	}
	s.listeners.add(l)
	return l
}

func (s *Simulated) pool(project, lb string, sent object) object {
	p := s.base(project, lb, sent)
	s.pools.add(p)
	members := newCollection()
	s.members[p.text("id")] = &members
	for _, m := range children(sent, "members") {
		s.member(p.text("id"), project, lb, m)
	}
	return p
}

func (s *Simulated) member(pool, project, lb string, sent object) object {
	m := s.base(project, lb, sent)
	if m["weight"] == nil {
		m["weight"] = 1
	}
	if m["backup"] == nil {
		m["backup"] = false
	}
	s.members[pool].add(m)
	return m
}

func (s *Simulated) policy(project, lb string, sent object) object {
	p := s.base(project, lb, sent)
	s.policies.add(p)
	return p
}

// Seed makes load balancers in a project, each with a listener of port 80 and a pool of
// members, and returns their IDs. It takes no ChangeTime.
func (s *Simulated) Seed(project string, balancers, members int) []string {
	id := s.Project(project)
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for i := range balancers {
		n := len(s.balancers.order)
		var list []any
		for k := range members {
			list = append(list, map[string]any{"address": fmt.Sprintf("10.%d.%d.%d", n>>8&255, n&255, k+1), "protocol_port": 8080})
		}
		pool := map[string]any{"protocol": "HTTP", "members": list}
		lb := s.balancer(object{
			"project_id": id, "name": fmt.Sprintf("%s-%d", project, i),
			"listeners": []any{map[string]any{"protocol": "HTTP", "protocol_port": 80, "default_pool": pool}},
		})
		ids = append(ids, lb.text("id"))
	}
	return ids
}

// Edit changes objects behind the API's back, as a failure or an administrator of the database
// does: f is called with each object of a list ("loadbalancers", "listeners", "pools",
// "l7policies" or "members") that has the ID, or with all where it is empty.
func (s *Simulated) Edit(list, id string, f func(map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	collections := []*collection{map[string]*collection{"loadbalancers": &s.balancers, "listeners": &s.listeners, "pools": &s.pools, "l7policies": &s.policies}[list]}
	if list == "members" {
		collections = nil
		for _, c := range s.members {
			collections = append(collections, c)
		}
	}
	for _, c := range collections {
		for _, o := range c.byID {
			if id == "" || o.text("id") == id {
				f(o)
			}
		}
	}
	s.unindex()
}

// Forget removes a load balancer without a trace, at once.
func (s *Simulated) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lb := s.balancers.byID[id]; lb != nil {
		s.remove("loadbalancers", lb)
	}
}

// Touch says that a load balancer changed now.
func (s *Simulated) Touch(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lb := s.balancers.byID[id]; lb != nil {
		lb["updated_at"] = s.stamp()
	}
}

// RenamePool gives the pool of a load balancer another ID, as if it was made anew.
func (s *Simulated) RenamePool(balancer, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pools.where("load_balancer_id", balancer) {
		old := p.text("id")
		members := s.members[old]
		s.pools.remove(old)
		delete(s.members, old)
		p["id"] = id
		s.pools.add(p)
		s.members[id] = members
	}
	s.unindex()
}

package openstack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// object is an entry of a list, as it is in JSON.
type object map[string]any

func (o object) text(key string) string {
	s, _ := o[key].(string)
	return s
}

// refs are the IDs of objects, as other objects name them.
type refs []object

// collection holds the objects of one list, in the order of their creation.
type collection struct {
	order []string
	byID  map[string]object
	// index of the objects by a key's value, as long as nothing changes.
	index map[string]map[string][]object
}

func (c *collection) add(o object) {
	for key, values := range c.index {
		values[o.text(key)] = append(values[o.text(key)], o)
	}
	c.order = append(c.order, o.text("id"))
	c.byID[o.text("id")] = o
}

func (c *collection) remove(id string) {
	c.index = nil
	delete(c.byID, id)
	c.order = slices.DeleteFunc(c.order, func(other string) bool { return other == id })
}

func (c *collection) where(key, value string) []object {
	if c.index[key] == nil {
		if c.index == nil {
			c.index = map[string]map[string][]object{}
		}
		c.index[key] = map[string][]object{}
		for _, id := range c.order {
			o := c.byID[id]
			c.index[key][o.text(key)] = append(c.index[key][o.text(key)], o)
		}
	}
	return slices.Clone(c.index[key][value])
}

// Simulated is a cloud that exists in memory only: an http.Handler with keystone below
// /identity/, octavia below /load-balancer/ and LBaaS v2 below /network/. It knows the parts
// of their APIs that list and change load balancers. Like Octavia it gives update times in
// seconds, is PENDING_UPDATE for some time after a change, has a link to a next page after
// each full page, and lets that link forget the filters.
type Simulated struct {
	// ChangeTime is how long a change takes, after the request that asked for it.
	ChangeTime time.Duration
	// Latency of each answer.
	Latency time.Duration
	// PageLimit bounds pages; 0: 1000.
	PageLimit int
	// Now is the clock of the cloud; nil: time.Now.
	Now func() time.Time
	// TokenTime is how long tokens are valid; 0: for ever.
	TokenTime time.Duration

	mu       sync.Mutex
	fault    func(http.ResponseWriter, *http.Request) bool
	requests map[string]int
	ids      int
	projects collection
	accounts []Account
	tokens   map[string]token
	store
}

// store is what a backup holds.
type store struct {
	balancers, listeners, pools, policies collection
	members                               map[string]*collection // by ID of their pool
}

// Account may sign in. Name and Password, or ID and Secret of an application credential.
type Account struct {
	Name, Password string
	ID, Secret     string
	Admin          bool     // may list everything
	Projects       []string // names; of an application credential the only one
}

type token struct {
	project object // nil: none
	admin   bool
	account Account
	until   time.Time // zero: for ever
}

// NewSimulated makes a cloud with the project admin and a user of that name, with the
// password secret.
func NewSimulated() *Simulated {
	s := &Simulated{requests: map[string]int{}, projects: newCollection(), tokens: map[string]token{}, store: newStore()}
	s.Project("admin")
	s.Account(Account{Name: "admin", Password: "secret", Admin: true, Projects: []string{"admin"}})
	return s
}

func newCollection() collection { return collection{byID: map[string]object{}} }

func newStore() store {
	return store{
		balancers: newCollection(), listeners: newCollection(), pools: newCollection(), policies: newCollection(),
		members: map[string]*collection{},
	}
}

// Project makes a project, or finds it, and returns its ID.
func (s *Simulated) Project(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.projects.where("name", name); len(found) > 0 {
		return found[0].text("id")
	}
	s.ids++
	id := fmt.Sprintf("%032x", s.ids)
	s.projects.add(object{"id": id, "name": name, "enabled": true, "domain_id": "default"})
	return id
}

// Account adds an account.
func (s *Simulated) Account(a Account) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts = append(s.accounts, a)
}

// Password changes that of a user. Tokens end.
func (s *Simulated) Password(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.accounts {
		if s.accounts[i].Name == user {
			s.accounts[i].Password = password
		}
	}
	s.tokens = map[string]token{}
}

// Expire ends all tokens.
func (s *Simulated) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]token{}
}

// Fault answers requests in place of the cloud where it returns true; nil ends that.
func (s *Simulated) Fault(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Requests are the numbers of requests since the last call, by method and kind of path, such
// as "GET loadbalancers".
func (s *Simulated) Requests() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = map[string]int{}
	return all
}

// Backup copies the load balancers; Restore brings a copy back.
func (s *Simulated) Backup() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clone()
}

// Restore brings back what Backup copied.
func (s *Simulated) Restore(backup any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := backup.(store); ok {
		s.store = b.clone()
	}
}

func (s store) clone() store {
	clone := func(c collection) collection {
		n := collection{order: slices.Clone(c.order), byID: map[string]object{}}
		for id, o := range c.byID {
			n.byID[id] = maps.Clone(o)
		}
		return n
	}
	n := store{
		balancers: clone(s.balancers), listeners: clone(s.listeners), pools: clone(s.pools), policies: clone(s.policies),
		members: map[string]*collection{},
	}
	for id, c := range s.members {
		copied := clone(*c)
		n.members[id] = &copied
	}
	return n
}

func (s *Simulated) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func (s *Simulated) stamp() string { return s.now().UTC().Format("2006-01-02T15:04:05") }

func (s *Simulated) id() string {
	s.ids++
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", s.ids*2654435761&0xffffffff, s.ids)
}

// ServeHTTP answers a request.
func (s *Simulated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Latency > 0 {
		timer := time.NewTimer(s.Latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	fault := s.fault
	s.requests[r.Method+" "+kindOf(r.URL.Path)]++
	s.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method != http.MethodGet {
		defer s.unindex()
	}
	path := strings.Trim(r.URL.Path, "/")
	if path == "identity/v3/auth/tokens" && r.Method == http.MethodPost {
		s.signIn(w, r)
		return
	}
	if path == "load-balancer" {
		reply(w, http.StatusOK, object{"versions": []object{{
			"id": "v2.0", "status": "CURRENT", "links": []object{{"rel": "self", "href": "http://" + r.Host + "/load-balancer/v2"}},
		}}})
		return
	}
	t, ok := s.tokens[r.Header.Get("X-Auth-Token")]
	if !ok || !t.until.IsZero() && !s.now().Before(t.until) {
		reply(w, http.StatusUnauthorized, object{"error": object{"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}})
		return
	}
	switch {
	case strings.HasPrefix(path, "identity/v3/"):
		s.identity(w, r, t, strings.TrimPrefix(path, "identity/v3/"))
	case strings.HasPrefix(path, "load-balancer/v2.0/lbaas/"):
		s.lbaas(w, r, t, strings.Split(strings.TrimPrefix(path, "load-balancer/v2.0/lbaas/"), "/"), false)
	case strings.HasPrefix(path, "network/v2.0/lbaas/"):
		s.lbaas(w, r, t, strings.Split(strings.TrimPrefix(path, "network/v2.0/lbaas/"), "/"), true)
	default:
		notFound(w, path)
	}
}

// unindex follows every change of an object.
func (s *Simulated) unindex() {
	for _, c := range []*collection{&s.balancers, &s.listeners, &s.pools, &s.policies} {
		c.index = nil
	}
}

// kindOf is a path without IDs.
func kindOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "identity":
		return strings.Join(parts[min(2, len(parts)):min(4, len(parts))], "/")
	case "load-balancer", "network":
		parts = parts[min(3, len(parts)):]
		if len(parts) > 1 {
			parts[1] = "ID"
		}
		if len(parts) > 3 {
			parts[3] = "ID"
		}
	}
	return strings.Join(parts, "/")
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	reply(w, status, object{"faultcode": "Client", "faultstring": message})
}

func notFound(w http.ResponseWriter, what string) { refuse(w, http.StatusNotFound, what+" not found.") }

// signIn answers a request for a token.
func (s *Simulated) signIn(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ ID, Name, Password string }
				}
				Application struct{ ID, Secret string } `json:"application_credential"`
			}
			Scope struct {
				Project struct{ ID, Name string }
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		reply(w, http.StatusBadRequest, object{"error": object{"code": 400, "message": err.Error()}})
		return
	}
	user, app, scope := request.Auth.Identity.Password.User, request.Auth.Identity.Application, request.Auth.Scope.Project
	at := slices.IndexFunc(s.accounts, func(a Account) bool {
		if app.ID != "" {
			return a.ID == app.ID && a.Secret == app.Secret
		}
		return a.Name != "" && a.Name == user.Name && a.Password == user.Password
	})
	var account Account
	var of object
	if at >= 0 {
		account = s.accounts[at]
		for _, p := range s.projects.byID {
			wanted := p.text("id") == scope.ID || p.text("name") == scope.Name || app.ID != ""
			if wanted && slices.Contains(account.Projects, p.text("name")) {
				of = p
			}
		}
	}
	if at < 0 || of == nil && (scope.ID != "" || scope.Name != "") {
		reply(w, http.StatusUnauthorized, object{"error": object{"code": 401, "message": "The request you have made requires authentication.", "title": "Unauthorized"}})
		return
	}
	t := token{project: of, admin: account.Admin, account: account}
	if s.TokenTime > 0 {
		t.until = s.now().Add(s.TokenTime)
	}
	id := "token-" + s.id()
	s.tokens[id] = t
	endpoint := func(kind, path string) object {
		return object{"type": kind, "name": kind, "id": kind, "endpoints": []object{{
			"id": kind, "interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": "http://" + r.Host + path,
		}}}
	}
	w.Header().Set("X-Subject-Token", id)
	body := object{
		"methods": []string{"password"}, "issued_at": s.now().UTC().Format(time.RFC3339), "expires_at": s.now().Add(time.Hour).UTC().Format(time.RFC3339),
		"user":    object{"id": "user", "name": account.Name, "domain": object{"id": "default", "name": "Default"}},
		"catalog": []object{endpoint("identity", "/identity/v3"), endpoint("load-balancer", "/load-balancer"), endpoint("network", "/network")},
	}
	if of != nil {
		body["project"] = object{"id": of["id"], "name": of["name"], "domain": object{"id": "default", "name": "Default"}}
	}
	reply(w, http.StatusCreated, object{"token": body})
}

func (s *Simulated) identity(w http.ResponseWriter, r *http.Request, t token, path string) {
	var all []object
	for _, id := range s.projects.order {
		if p := s.projects.byID[id]; path == "projects" || slices.Contains(t.account.Projects, p.text("name")) {
			all = append(all, p)
		}
	}
	one := s.projects.byID[strings.TrimPrefix(path, "projects/")]
	switch {
	case path == "auth/projects":
	case !strings.HasPrefix(path, "projects"):
		notFound(w, path)
		return
	case !t.admin:
		reply(w, http.StatusForbidden, object{"error": object{"code": 403, "message": "You are not authorized to perform the requested action: identity:list_projects."}})
		return
	case path == "projects":
	case one == nil:
		notFound(w, path)
		return
	default:
		reply(w, http.StatusOK, object{"project": one})
		return
	}
	if all == nil {
		all = []object{}
	}
	reply(w, http.StatusOK, object{"projects": all, "links": object{"next": nil, "self": r.URL.String(), "previous": nil}})
}

// list answers with one page of a list.
func (s *Simulated) list(w http.ResponseWriter, r *http.Request, t token, key string, c *collection, old bool) {
	query := r.URL.Query()
	project := query.Get("project_id")
	if !t.admin {
		own := t.project.text("id")
		if project != "" && project != own {
			refuse(w, http.StatusForbidden, "Policy does not allow this request to be performed.")
			return
		}
		project = own
	}
	all := make([]object, 0, len(c.order))
	for _, id := range c.order {
		o := c.byID[id]
		if project != "" && o["project_id"] != nil && o.text("project_id") != project {
			continue
		}
		if lb := cmp.Or(query.Get("loadbalancer_id"), query.Get("load_balancer_id")); lb != "" && o.text("load_balancer_id") != lb {
			continue
		}
		if listener := query.Get("listener_id"); listener != "" && o.text("listener_id") != listener {
			continue
		}
		all = append(all, o)
	}
	if query.Get("sort") == "updated_at:desc" && !old {
		slices.SortStableFunc(all, func(a, b object) int { return cmp.Compare(b.text("updated_at"), a.text("updated_at")) })
	}
	if marker := query.Get("marker"); marker != "" {
		at := slices.IndexFunc(all, func(o object) bool { return o.text("id") == marker })
		if at < 0 {
			refuse(w, http.StatusBadRequest, "The marker "+marker+" is invalid.")
			return
		}
		all = all[at+1:]
	}
	limit := cmp.Or(s.PageLimit, 1000)
	if asked, err := strconv.Atoi(query.Get("limit")); err == nil && asked > 0 {
		limit = min(limit, asked)
	}
	links := []object{}
	if len(all) >= limit {
		all = all[:limit]
		next := url.Values{"limit": {strconv.Itoa(limit)}, "marker": {all[limit-1].text("id")}}
		if sort := query.Get("sort"); sort != "" {
			next.Set("sort", sort)
		}
		links = append(links, object{"rel": "next", "href": "http://" + r.Host + r.URL.Path + "?" + next.Encode()})
	}
	shown := make([]object, len(all))
	for i, o := range all {
		shown[i] = s.show(o, old)
		if fields := query["fields"]; len(fields) > 0 && !old {
			maps.DeleteFunc(shown[i], func(k string, _ any) bool { return !slices.Contains(fields, k) })
		}
	}
	reply(w, http.StatusOK, object{key: shown, key + "_links": links})
}

// show is an object as its API shows it, with the parts that it has.
func (s *Simulated) show(o object, old bool) object {
	o = maps.Clone(o)
	of := func(objects []object) refs {
		all := refs{}
		for _, other := range objects {
			all = append(all, object{"id": other["id"]})
		}
		return all
	}
	id := o.text("id")
	switch {
	case s.balancers.byID[id] != nil:
		o["listeners"], o["pools"] = of(s.listeners.where("load_balancer_id", id)), of(s.pools.where("load_balancer_id", id))
	case s.listeners.byID[id] != nil:
		o["l7policies"] = of(s.policies.where("listener_id", id))
		o["loadbalancers"] = refs{{"id": o["load_balancer_id"]}}
	case s.pools.byID[id] != nil:
		members := s.members[id]
		all := refs{}
		for _, m := range members.order {
			all = append(all, object{"id": m})
		}
		o["members"], o["listeners"] = all, of(s.listeners.where("default_pool_id", id))
		o["loadbalancers"] = refs{{"id": o["load_balancer_id"]}}
	}
	delete(o, "load_balancer_id")
	if old {
		o["tenant_id"] = o["project_id"]
		for _, key := range []string{"project_id", "updated_at", "created_at", "tags"} {
			delete(o, key)
		}
		if o["address"] != nil { // a member
			delete(o, "operating_status")
			delete(o, "provisioning_status")
			delete(o, "backup")
		}
	}
	return o
}

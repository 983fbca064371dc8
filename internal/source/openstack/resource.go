package openstack

import (
	"slices"
	"strings"
	"time"
)

// Statuses of Octavia's objects.
const (
	active        = "ACTIVE"
	pendingCreate = "PENDING_CREATE"
	pendingUpdate = "PENDING_UPDATE"
	pendingDelete = "PENDING_DELETE"
	deleted       = "DELETED"
	failed        = "ERROR" // provisioning and operating status

	draining = "DRAINING" // operating status
)

// loadBalancer is an entry of a list of load balancers, as far as it is used here.
type loadBalancer struct {
	ID                 string   `json:"id"`
	Name               string   `json:"name"`
	ProjectID          string   `json:"project_id"`
	TenantID           string   `json:"tenant_id"` // LBaaS v2
	AdminStateUp       *bool    `json:"admin_state_up"`
	ProvisioningStatus string   `json:"provisioning_status"`
	OperatingStatus    string   `json:"operating_status"`
	UpdatedAt          string   `json:"updated_at"`
	Tags               []string `json:"tags"`
}

// fields of a loadBalancer, to be asked for by name.
var loadBalancerFields = []string{
	"id", "name", "project_id", "admin_state_up", "provisioning_status", "operating_status", "updated_at", "tags",
}

func (l *loadBalancer) project() string {
	if l.ProjectID == "" {
		return l.TenantID
	}
	return l.ProjectID
}

// changed is when the load balancer or a part of it was last changed; zero: unknown.
func (l *loadBalancer) changed() time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", strings.TrimSuffix(l.UpdatedAt, "Z"))
	if err != nil {
		return time.Time{}
	}
	return t
}

// same reports whether an entry says the same as an earlier one: then nothing of the load
// balancer changed in between, except within the same second.
func (l *loadBalancer) same(o *loadBalancer) bool {
	return l.ID == o.ID && l.Name == o.Name && l.project() == o.project() && up(l.AdminStateUp) == up(o.AdminStateUp) &&
		l.ProvisioningStatus == o.ProvisioningStatus && l.OperatingStatus == o.OperatingStatus &&
		l.UpdatedAt == o.UpdatedAt && slices.Equal(l.Tags, o.Tags)
}

func (l *loadBalancer) gone() bool {
	return l.ProvisioningStatus == deleted || l.ProvisioningStatus == pendingDelete
}

func (l *loadBalancer) pending() bool { return strings.HasPrefix(l.ProvisioningStatus, "PENDING_") }

type listener struct {
	ID                 string `json:"id"`
	AdminStateUp       *bool  `json:"admin_state_up"`
	ProvisioningStatus string `json:"provisioning_status"`
	Protocol           string `json:"protocol"`
	ProtocolPort       int64  `json:"protocol_port"`
	DefaultPoolID      string `json:"default_pool_id"`
	LoadBalancers      []ref  `json:"loadbalancers"`
	L7Policies         []ref  `json:"l7policies"`
}

type pool struct {
	ID                 string `json:"id"`
	Name               string `json:"name"`
	AdminStateUp       *bool  `json:"admin_state_up"`
	ProvisioningStatus string `json:"provisioning_status"`
	OperatingStatus    string `json:"operating_status"`
	UpdatedAt          string `json:"updated_at"`
	LoadBalancers      []ref  `json:"loadbalancers"`
	Listeners          []ref  `json:"listeners"` // LBaaS v2 may have no loadbalancers
	Members            []ref  `json:"members"`
}

// same reports whether the members of the pool need not be read again.
func (p *pool) same(o *pool) bool {
	return p.UpdatedAt != "" && p.UpdatedAt == o.UpdatedAt && p.ProvisioningStatus == o.ProvisioningStatus &&
		p.OperatingStatus == o.OperatingStatus && slices.Equal(p.Members, o.Members)
}

type policy struct {
	ID                 string `json:"id"`
	Action             string `json:"action"`
	ProvisioningStatus string `json:"provisioning_status"`
	ListenerID         string `json:"listener_id"`
	RedirectPoolID     string `json:"redirect_pool_id"`
}

type member struct {
	ID                 string `json:"id"`
	AdminStateUp       *bool  `json:"admin_state_up"`
	ProvisioningStatus string `json:"provisioning_status"`
	OperatingStatus    string `json:"operating_status"`
	Address            string `json:"address"`
	ProtocolPort       int64  `json:"protocol_port"`
	Weight             *int64 `json:"weight"`
	Backup             bool   `json:"backup"`
}

type ref struct {
	ID string `json:"id"`
}

// project of the identity service.
type project struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled"`
}

// identified are the entries of lists.
type identified interface {
	loadBalancer | listener | pool | policy | member | project
}

// idOf is the ID of an entry.
func idOf[T identified](entry *T) string {
	switch e := any(entry).(type) {
	case *loadBalancer:
		return e.ID
	case *listener:
		return e.ID
	case *pool:
		return e.ID
	case *policy:
		return e.ID
	case *member:
		return e.ID
	case *project:
		return e.ID
	}
	return ""
}

// up is the value of admin_state_up, which is true where it is not said.
func up(adminStateUp *bool) bool { return adminStateUp == nil || *adminStateUp }

// tree is a load balancer with all its parts.
type tree struct {
	loadBalancer loadBalancer
	listeners    []listener
	pools        []pool
	policies     []policy
	members      map[string][]member // by ID of their pool
	// served: an earlier form of it had services.
	served bool
}

// torn says which part a listener, policy or pool names without its being there; empty: none. The
// load balancer then changed while its parts were read, or an answer is not complete.
func (t *tree) torn() string {
	pools := t.poolsByID()
	for i := range t.listeners {
		if l := &t.listeners[i]; l.DefaultPoolID != "" && pools[l.DefaultPoolID] == nil {
			return "pool " + l.DefaultPoolID + " of listener " + l.ID
		}
	}
	for i := range t.policies {
		if p := &t.policies[i]; p.RedirectPoolID != "" && pools[p.RedirectPoolID] == nil {
			return "pool " + p.RedirectPoolID + " of L7 policy " + p.ID
		}
	}
	used := t.used()
	for i := range t.pools {
		p := &t.pools[i]
		if !used[p.ID] {
			continue // its members were not read
		}
		have := make(map[string]bool, len(t.members[p.ID]))
		for k := range t.members[p.ID] {
			have[t.members[p.ID][k].ID] = true
		}
		for _, m := range p.Members {
			if !have[m.ID] {
				return "member " + m.ID + " of pool " + p.ID
			}
		}
	}
	return ""
}

// used are the IDs of the pools to which a listener or policy leads: others have no service.
func (t *tree) used() map[string]bool {
	used := map[string]bool{}
	for i := range t.listeners {
		used[t.listeners[i].DefaultPoolID] = true
	}
	for i := range t.policies {
		used[t.policies[i].RedirectPoolID] = true
	}
	return used
}

func (t *tree) poolsByID() map[string]*pool {
	pools := make(map[string]*pool, len(t.pools))
	for i := range t.pools {
		pools[t.pools[i].ID] = &t.pools[i]
	}
	return pools
}

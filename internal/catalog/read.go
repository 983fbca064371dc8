package catalog

import (
	"iter"
	"maps"
	"slices"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// ListenerIDs are the listeners that there are, sorted.
func (c *Catalog) ListenerIDs() []model.ListenerID {
	var ids []model.ListenerID
	for id, s := range c.listeners {
		if s.listener != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Listener is nil where there is none.
func (c *Catalog) Listener(id model.ListenerID) *model.Listener {
	if s := c.listeners[id]; s != nil {
		return s.listener
	}
	return nil
}

// HostCount is how many virtual hosts a listener has.
func (c *Catalog) HostCount(id model.ListenerID) int {
	if s := c.listeners[id]; s != nil {
		return s.hosts
	}
	return 0
}

// VirtualHost is nil where there is none.
func (c *Catalog) VirtualHost(k model.HostKey) *model.VirtualHost {
	if s := c.listeners[k.Listener]; s != nil {
		return s.shards[xds.Shard(k.Listener, k.Host)][k.Host]
	}
	return nil
}

// HostsIn are the virtual hosts in a shard of a listener.
func (c *Catalog) HostsIn(id model.ListenerID, shard int) iter.Seq[model.HostKey] {
	return func(yield func(model.HostKey) bool) {
		s := c.listeners[id]
		if s == nil {
			return
		}
		for host := range s.shards[shard] {
			if !yield(model.HostKey{Listener: id, Host: host}) {
				return
			}
		}
	}
}

// TLSHost is nil where there is none.
func (c *Catalog) TLSHost(k model.HostKey) *model.TLSHost {
	if s := c.listeners[k.Listener]; s != nil {
		return s.tls[k.Host]
	}
	return nil
}

// ServerNames are the server names of a listener, in no order.
func (c *Catalog) ServerNames(id model.ListenerID) []string {
	if s := c.listeners[id]; s != nil {
		return slices.Collect(maps.Keys(s.tls))
	}
	return nil
}

// Certificate is nil where there is none.
func (c *Catalog) Certificate(id model.CertificateID) *model.Certificate {
	return c.secrets.certificates[id]
}

// Group is nil where there is none.
func (c *Catalog) Group(id model.GroupID) *model.BackendGroup {
	if e := c.groups[id]; e != nil {
		return e.group
	}
	return nil
}

// Set is nil where there is none.
func (c *Catalog) Set(id model.SetID) *model.BackendSet {
	if e := c.sets[id]; e != nil {
		return e.set
	}
	return nil
}

// Users are the hosts that name a group; with an empty host, the listener itself does.
func (c *Catalog) Users(id model.GroupID) iter.Seq[model.HostKey] {
	if e := c.groups[id]; e != nil {
		return maps.Keys(e.users)
	}
	return func(func(model.HostKey) bool) {}
}

// Unfit is the reason why a wanted resource cannot be sent; empty: it can.
func (c *Catalog) Unfit(k Key) string { return c.unfit[k] }

// AllUnfit are the wanted resources that cannot be sent, and why. They must not be changed.
func (c *Catalog) AllUnfit() map[Key]string { return c.unfit }

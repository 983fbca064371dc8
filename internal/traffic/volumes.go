package traffic

import "fairlead.dev/internal/model"

// Counted is what a proxy has counted of something, by the name that it is added to.
type Counted struct {
	Key  string // of what is counted; each only once
	Name string // of the total
	// Namespace is that whose share of the names it is; empty: of none.
	Namespace string
	Volume    model.Volume
}

// Volumes add up what the proxies of one machine have counted, one after the other. At most so many names have a total of their own, which
// namespaces share (seats). What is beyond is Other's. A total never shrinks; it goes with the seat of its name.
type Volumes struct {
	seats *seats[string]
	last  map[string]model.Volume // of the present proxy, by Key
	names map[string]*model.Volume
	left  map[string]struct{} // names beyond the bound at the last call, up to as many again
}

// NewVolumes returns empty Volumes.
func NewVolumes(most int) *Volumes {
	return &Volumes{seats: newSeats[string](most, quietTurns), last: map[string]model.Volume{}, names: map[string]*model.Volume{}, left: map[string]struct{}{}}
}

// Take adds what has been counted since the last call. What is gone, or less than before, was another proxy's.
func (v *Volumes) Take(counted []Counted) {
	for _, total := range v.names {
		total.Open = 0
	}
	v.seats.turn()
	clear(v.left)
	next := make(map[string]model.Volume, len(counted))
	for _, c := range counted {
		more, same := c.Volume.Less(v.last[c.Key])
		if !same {
			more = c.Volume
		}
		v.of(c.Name, c.Namespace, counts(more)).Merge(more)
		next[c.Key] = c.Volume
	}
	v.last = next
}

func (v *Volumes) of(name, namespace string, counts bool) *model.Volume {
	has, gone := v.seats.has(name, namespace, counts)
	if gone != nil {
		delete(v.names, *gone)
		v.leave(*gone)
	}
	if !has {
		v.leave(name)
		name = Other
	}
	if v.names[name] == nil {
		v.names[name] = &model.Volume{}
	}
	return v.names[name]
}

// counts says whether anything has been counted.
func counts(v model.Volume) bool {
	return v.Received+v.Sent+v.Retries+v.Resets+v.Connections > 0 || v.Answers != [model.StatusClasses]uint64{} || v.Seconds.Count() > 0
}

func (v *Volumes) leave(name string) {
	if len(v.left) < v.seats.most {
		v.left[name] = struct{}{}
	}
}

// All calls f with each total.
func (v *Volumes) All(f func(name string, total model.Volume)) {
	for name, total := range v.names {
		f(name, *total)
	}
}

// Left is how many names have no total of their own, as far as they are remembered.
func (v *Volumes) Left() int { return len(v.left) }

// Counted names what a proxy has counted.
func (b By) Counted(t model.Traffic) []Counted {
	switch b {
	case Namespaces:
		return byNamespace(t)
	case Upstreams:
		return byUpstream(t)
	case Listeners:
		return byListener(t)
	case Routes:
		return byOwner(t)
	case Hosts:
		return byHost(t)
	}
	return nil
}

// byNamespace names Services by their namespace.
func byNamespace(t model.Traffic) []Counted {
	list := make([]Counted, 0, len(t.Services))
	for i := range t.Services {
		s := &t.Services[i]
		list = append(list, Counted{Key: s.Key(), Name: orNone(s.Namespace), Volume: s.Volume})
	}
	return list
}

// byUpstream names the Services of Upstreams.
func byUpstream(t model.Traffic) []Counted {
	var list []Counted
	for i := range t.Services {
		if s := &t.Services[i]; s.Upstream != "" {
			list = append(list, Counted{Key: s.Key(), Name: s.Upstream, Volume: s.Volume})
		}
	}
	return list
}

// byListener names listeners.
func byListener(t model.Traffic) []Counted {
	list := make([]Counted, 0, len(t.Listeners))
	for i := range t.Listeners {
		l := &t.Listeners[i]
		list = append(list, Counted{Key: string(l.Listener), Name: string(l.Listener), Volume: l.Volume})
	}
	return list
}

// byOwner names the resources whose routes have series of their own.
func byOwner(t model.Traffic) []Counted {
	list := make([]Counted, 0, len(t.Routes))
	for i := range t.Routes {
		r := &t.Routes[i]
		_, namespace, _ := Owner(r.Owner)
		list = append(list, Counted{Key: r.Owner, Name: r.Owner, Namespace: namespace, Volume: r.Volume})
	}
	return list
}

// byHost names virtual hosts. What is counted there are the routes that have series of their own.
func byHost(t model.Traffic) []Counted {
	if len(t.Hosts) == 0 {
		return nil
	}
	namespaces := map[string]string{}
	for i := range t.Requests {
		if f := &t.Requests[i]; namespaces[f.Host] == "" {
			namespaces[f.Host] = Hosts.sharedBy(f)
		}
	}
	list := make([]Counted, 0, len(t.Hosts))
	for i := range t.Hosts {
		h := &t.Hosts[i]
		list = append(list, Counted{Key: h.Host, Name: h.Host, Namespace: namespaces[h.Host], Volume: h.Volume})
	}
	return list
}

func orNone(name string) string {
	if name == "" {
		return None
	}
	return name
}

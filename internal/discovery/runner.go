package discovery

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
)

// runner is the source of one upstream that runs.
type runner struct {
	id          uint64
	fingerprint [sha256.Size]byte // of what it was made from
	stop        context.CancelFunc
}

// startQueue bounds how many upstreams begin to be read at once: their first lists are the largest.
type startQueue struct {
	waiting []string
	begun   int // since the last tick
	last    uint64
}

// startsPerTick is how many sources begin in a tick. All of several hundred are begun within seconds.
const startsPerTick = 64

// Origin is what a source is made from.
type Origin struct {
	Upstream *v1alpha1.Upstream
	Secret   *corev1.Secret // its credentials
	// OwnUID is the UID of the namespace kube-system of the plane's own API.
	OwnUID string
	Config *Config
	// Counters count the requests of all sources of the upstream.
	Counters *cloud.Counters
}

// secretOf is the name of the Secret with the credentials of an Upstream.
func secretOf(u *v1alpha1.Upstream) string {
	switch {
	case u.Spec.Kubernetes != nil:
		return u.Spec.Kubernetes.Secret
	case u.Spec.OpenStack != nil:
		return u.Spec.OpenStack.Secret
	}
	return ""
}

// fingerprint changes with everything by which a source is another one.
func (o Origin) fingerprint() [sha256.Size]byte {
	spec := o.Upstream.Spec.DeepCopy()
	spec.Addresses, spec.Loss, spec.Naming = nil, v1alpha1.UpstreamLoss{}, ""
	spec.Limits.Services, spec.Limits.Endpoints = 0, 0
	spec.Namespaces.Map, spec.Namespaces.ProjectsBy = nil, ""
	h := sha256.New()
	text, _ := json.Marshal(spec) // plain data
	h.Write(text)
	h.Write([]byte(o.OwnUID))
	if o.Secret != nil {
		for _, k := range slices.Sorted(maps.Keys(o.Secret.Data)) {
			h.Write([]byte(k))
			h.Write([]byte{0})
			sum := sha256.Sum256(o.Secret.Data[k])
			h.Write(sum[:])
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// follow sees to it that an upstream has the source that its Upstream and its Secret say, if this plane leads.
func (s *state) follow(name string) {
	u := s.upstreams[name]
	if u == nil {
		s.stop(name)
		delete(s.reports, name)
		delete(s.counters, name)
		s.meter.changes.DeleteLabelValues(name)
		s.config.Changed(name, nil)
		return
	}
	if s.reports[name] == nil {
		s.reports[name], s.counters[name] = &report{}, &cloud.Counters{}
	}
	if !s.leads || !s.synced {
		return
	}
	o := Origin{
		Upstream: u, Secret: s.secrets[snapshot.Name{Namespace: v1alpha1.SystemNamespace, Name: secretOf(u)}], OwnUID: s.ownUID, Config: &s.config,
		Counters: s.counters[name],
	}
	print := o.fingerprint()
	if r := s.runners[name]; r != nil && r.fingerprint == print {
		s.tellOf(name)
		return
	}
	s.stop(name)
	if s.starts.begun == startsPerTick {
		s.starts.waiting = append(s.starts.waiting, name)
		s.tellOf(name)
		return
	}
	s.starts.begun++
	s.begin(name, o, print)
}

// beginDue begins sources that wait for their turn.
func (s *state) beginDue() {
	waiting := s.starts.waiting
	s.starts.waiting, s.starts.begun = nil, 0
	for _, name := range waiting {
		s.follow(name)
	}
}

// begin makes and runs a source.
func (s *state) begin(name string, o Origin, print [sha256.Size]byte) {
	s.starts.last++
	run, stop := context.WithCancel(s.run)
	r := &runner{id: s.starts.last, fingerprint: print, stop: stop}
	s.runners[name] = r
	source, err := s.config.Open(o, sink{s.feed, name, r.id, s.config.Now})
	s.reports[name].accepted = err
	s.tellOf(name)
	if err != nil {
		stop()
		return
	}
	s.sources.Go(func() { source.Run(run) })
}

// stop ends the source of an upstream. What it says from now on is not heard.
func (s *state) stop(name string) {
	if r := s.runners[name]; r != nil {
		r.stop()
		s.feed.forget(r.id)
		delete(s.runners, name)
	}
	s.starts.waiting = slices.DeleteFunc(s.starts.waiting, func(n string) bool { return n == name })
}

// stopAll ends all sources. It does not wait for them.
func (s *state) stopAll() {
	for _, name := range sortedNames(s.runners) {
		s.stop(name)
	}
	s.starts.waiting = nil
}

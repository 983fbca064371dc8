package discovery

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
)

// Why nobody can be heard on a link.
var (
	ErrNoInterface = errors.New("there is no such interface")
	ErrNoAddress   = errors.New("the interface has no link-local IPv6 address")
	ErrDown        = errors.New("the interface is down")
)

// Session is the desired session over a link.
type Session struct {
	Router netip.Addr // that has it, or had the last one; zero if there was none
	Up     bool
}

// Watcher watches links for routers. Its methods may be called concurrently.
type Watcher struct {
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	links map[string]*link
}

// New returns a Watcher of no link. It calls changed when Routers may differ from before; changed must not block.
func New(log *slog.Logger, changed func()) *Watcher {
	return &Watcher{log: log, changed: changed, links: map[string]*link{}}
}

// Watch replaces the links that are watched: interfaces by name, and the session over each. This machine begins
// to advertise itself on a new link, and stops on a removed one.
func (w *Watcher) Watch(wanted map[string]Session) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, l := range w.links {
		if _, stays := wanted[name]; !stays {
			close(l.stop)
			delete(w.links, name)
		}
	}
	for name, session := range wanted {
		l := w.links[name]
		if l == nil {
			l = newLink(name, w.log, w.changed)
			w.links[name] = l
			go l.run()
		}
		l.settle(session)
	}
}

// Routers are the link-local addresses of the routers that are heard on a link, with its zone and sorted. That of the
// session is among them while the session is up, and after it until it fails to answer. The error is the reason if
// none can be heard.
func (w *Watcher) Routers(name string) ([]netip.Addr, error) {
	w.mu.Lock()
	l := w.links[name]
	w.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.routers), l.trouble
}

// Close stops watching. It does not wait.
func (w *Watcher) Close() { w.Watch(nil) }

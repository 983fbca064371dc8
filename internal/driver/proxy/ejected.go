package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

const (
	// ejectionLife is how long an ejection is believed without another word: Envoy says
	// nothing when the cluster or the backend itself goes. It lets none last longer than
	// five minutes by its default.
	ejectionLife = 5*time.Minute + 10*time.Second
	// maxEvents bounds the file of Envoy's events, bytes.
	maxEvents = 1 << 20
	// maxEvent bounds one of them, and maxCluster the cluster's name in it.
	maxEvent, maxCluster = 4 << 10, 512
	// maxEjections bounds what is remembered of them.
	maxEjections = 65536
)

// ejections are the backends that Envoy's outlier detection has taken out, as it writes
// into a file.
type ejections struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	read int64 // bytes of the file
	out  map[model.Ejection]time.Time
}

// event is a line of the file (envoy.data.cluster.v3.OutlierDetectionEvent).
type event struct {
	Cluster  string    `json:"cluster_name"`
	Upstream string    `json:"upstream_url"`
	Action   string    `json:"action"`
	Enforced bool      `json:"enforced"`
	Time     time.Time `json:"timestamp"`
}

func newEjections(path string, now func() time.Time) *ejections {
	return &ejections{path: path, now: now, out: map[model.Ejection]time.Time{}}
}

// reset forgets all: a new Envoy has taken nothing out.
func (e *ejections) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = os.Remove(e.path) // Envoy makes it, or appends to it
	e.read = 0
	clear(e.out)
}

// look reads what is new and says whether other backends are out now.
func (e *ejections) look() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.list()
	e.follow()
	now := e.now()
	maps.DeleteFunc(e.out, func(_ model.Ejection, since time.Time) bool { return now.Sub(since) > ejectionLife })
	return !slices.Equal(before, e.list())
}

func (e *ejections) follow() {
	f, err := os.OpenFile(e.path, os.O_RDWR, 0)
	if err != nil {
		return // nothing was ever taken out
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return
	}
	if info.Size() < e.read {
		e.read = 0 // somebody emptied it
	}
	data := make([]byte, min(info.Size()-e.read, 4*maxEvents))
	n, err := f.ReadAt(data, e.read)
	if err != nil && !errors.Is(err, io.EOF) {
		return
	}
	data = data[:n]
	whole := bytes.LastIndexByte(data, '\n') + 1
	for line := range bytes.Lines(data[:whole]) {
		e.take(line)
	}
	// What is not a line when there is as much as this is none.
	if e.read += int64(whole); whole == 0 && n >= maxEvents {
		e.read += int64(n)
	}
	if e.read == info.Size() && e.read > maxEvents {
		// Envoy appends and goes on at the new end. What it writes in between is lost, and
		// forgotten in time.
		if f.Truncate(0) == nil {
			e.read = 0
		}
	}
}

func (e *ejections) take(line []byte) {
	var v event
	if len(line) > maxEvent || json.Unmarshal(line, &v) != nil {
		return
	}
	backend, err := netip.ParseAddrPort(v.Upstream)
	if err != nil || backend.Addr().Zone() != "" || len(v.Cluster) > maxCluster {
		return
	}
	k := model.Ejection{Group: model.GroupID(v.Cluster), Backend: netip.AddrPortFrom(backend.Addr().Unmap(), backend.Port())}
	switch {
	case v.Action == "UNEJECT":
		delete(e.out, k)
	case v.Action == "EJECT" && v.Enforced && len(e.out) < maxEjections:
		e.out[k] = v.Time
		if now := e.now(); v.Time.After(now) {
			e.out[k] = now
		}
	}
}

func (e *ejections) list() []model.Ejection {
	return slices.SortedFunc(maps.Keys(e.out), model.Ejection.Compare)
}

// Ejected are the backends that Envoy's outlier detection has taken out of a cluster, sorted.
func (s *Supervisor) Ejected() []model.Ejection {
	s.ejections.mu.Lock()
	defer s.ejections.mu.Unlock()
	return s.ejections.list()
}

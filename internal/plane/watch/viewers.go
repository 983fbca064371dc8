package watch

import (
	"log/slog"
	"sync/atomic"
	"time"

	"fairlead.dev/internal/model"
)

// Config is what viewers are answered from. All of it is required.
type Config struct {
	Plane    Plane
	Loop     Loop
	Machines Machines
	Lists    Lists
	Now      func() time.Time
	Log      *slog.Logger
}

// Viewers answers all who look at one plane.
type Viewers struct {
	config    Config
	top       top
	tapped    atomic.Int32 // taps that are open
	upstreams *polled[model.UpstreamStatus]
	backends  *polled[model.BackendStatus]
	status    *polled[any]
}

// New prepares answers. Nothing is asked before somebody looks.
func New(c Config) *Viewers {
	v := &Viewers{config: c, top: top{now: c.Now, sample: c.Machines.Figures}}
	v.upstreams, v.backends, v.status = newLists(c)
	return v
}

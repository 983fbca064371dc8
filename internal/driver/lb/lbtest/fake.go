package lbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"fairlead.dev/internal/model"
)

// Kernel stands in for the kernel that a Fake changes. It outlives its Fakes.
type Kernel struct {
	mu        sync.Mutex
	frontends map[model.FrontendKey][]string
	others    []string
}

// NewKernel is a kernel with nothing in it.
func NewKernel() *Kernel { return &Kernel{frontends: map[model.FrontendKey][]string{}} }

// Dump returns the contents of the kernel.
func (k *Kernel) Dump() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	lines := slices.Clone(k.others)
	for key, backends := range k.frontends {
		lines = append(lines, fmt.Sprint(key, " -> ", backends))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Meddle adds somebody else's.
func (k *Kernel) Meddle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.others = append(k.others, "somebody else's")
}

// Damage takes a frontend away.
func (k *Kernel) Damage() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key := range k.frontends {
		delete(k.frontends, key)
		return
	}
}

// Fake is a data plane that moves no packet. Its methods may be called concurrently.
type Fake struct {
	Kind model.DataPlaneKind
	// Cannot says why a frontend cannot be carried out; nil: it can.
	Cannot func(*model.Balanced) error
	// Changed is called when the observed state may have changed.
	Changed func()

	kernel *Kernel
	mu     sync.Mutex
	last   *model.Balancing
	seen   []model.FrontendObserved
}

// NewFake makes a fake that changes k.
func NewFake(kind model.DataPlaneKind, k *Kernel) *Fake { return &Fake{Kind: kind, kernel: k} }

// Run waits for the end.
func (f *Fake) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Supports asks Cannot.
func (f *Fake) Supports(b *model.Balanced) error {
	if f.Cannot != nil {
		return f.Cannot(b)
	}
	return nil
}

// Set writes the frontends at this machine into the kernel.
func (f *Fake) Set(b model.Balancing) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.seen = &b, nil
	kept := map[model.FrontendKey][]string{}
	for key, x := range b.Frontends {
		if !slices.Contains(x.Frontend.Machines, b.Machine) {
			continue
		}
		o := model.FrontendObserved{FrontendKey: key, State: model.FrontendBalanced, Mode: x.Frontend.Mode, DataPlane: f.Kind}
		if o.Mode == model.ModeAuto {
			o.Mode = model.ModeNAT
		}
		if err := f.Supports(x); err != nil {
			o.State, o.Mode, o.Message = model.FrontendRefused, model.ModeAuto, err.Error()
			f.seen = append(f.seen, o)
			continue
		}
		kept[key] = []string{}
		for _, y := range x.Backends {
			if takes(b, x, y) {
				o.Available++
				kept[key] = append(kept[key], fmt.Sprint(y.Address, " weight ", y.Weight))
			}
		}
		f.seen = append(f.seen, o)
	}
	slices.SortFunc(f.seen, func(a, b model.FrontendObserved) int { return a.Compare(b.FrontendKey) })
	f.kernel.mu.Lock()
	f.kernel.frontends = kept
	f.kernel.mu.Unlock()
	if f.Changed != nil {
		f.Changed()
	}
	return nil
}

// takes says whether new flows may go to the backend from this machine.
func takes(b model.Balancing, f *model.Balanced, x model.FrontendBackend) bool {
	here := x.Machine == b.Machine && x.Machine != ""
	return x.State == model.BackendReady && x.Weight > 0 && (here || !f.Frontend.LocalOnly) && (!here || !b.Unready[f.Frontend.FrontendKey])
}

// Repair writes everything again.
func (f *Fake) Repair() error {
	f.mu.Lock()
	last := f.last
	f.mu.Unlock()
	if last == nil {
		return nil
	}
	return f.Set(*last)
}

// Last is what Set was called with, and whether it was.
func (f *Fake) Last() (model.Balancing, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return model.Balancing{}, false
	}
	return *f.last, true
}

// Observed is what Set made.
func (f *Fake) Observed() []model.FrontendObserved {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// Figures are zero.
func (f *Fake) Figures() ([]model.FrontendFigures, map[string]uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []model.FrontendFigures
	for _, o := range f.seen {
		if o.State != model.FrontendBalanced {
			continue
		}
		x := model.FrontendFigures{FrontendKey: o.FrontendKey}
		for _, b := range f.last.Frontends[o.FrontendKey].Backends {
			if b.State != model.BackendUnready {
				x.Backends = append(x.Backends, model.BackendFigures{Address: b.Address, Machine: b.Machine})
			}
		}
		all = append(all, x)
	}
	return all, map[string]uint64{}, nil
}

// Flows are none.
func (f *Fake) Flows(model.FlowQuery) ([]model.Flow, bool, error) { return nil, false, nil }

// Close takes away what Set made.
func (f *Fake) Close(leave bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if leave || f.last == nil {
		return nil
	}
	f.kernel.mu.Lock()
	defer f.kernel.mu.Unlock()
	f.kernel.frontends = map[model.FrontendKey][]string{}
	return nil
}

// Unsupported is an error for Fake.Cannot.
func Unsupported(what string) error { return fmt.Errorf("fake: %s: %w", what, errors.ErrUnsupported) }

// FakeSubject is a subject whose data planes are fakes on one kernel.
func FakeSubject(kind model.DataPlaneKind) Subject {
	k := NewKernel()
	return Subject{
		Kind: kind, InProcess: true,
		New: func() (DataPlane, error) {
			f := NewFake(kind, k)
			f.Cannot = func(b *model.Balanced) error {
				if b.Frontend.QUIC != nil {
					return Unsupported("QUIC")
				}
				return nil
			}
			return f, nil
		},
		Dump:   func() (string, error) { return k.Dump(), nil },
		Meddle: func() error { k.Meddle(); return nil },
		Damage: func() error { k.Damage(); return nil },
		Repair: func(p DataPlane) error { return p.(*Fake).Repair() },
		Cannot: map[Feature]string{QUIC: "QUIC"},
	}
}

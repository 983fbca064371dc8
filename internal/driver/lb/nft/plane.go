package nft

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/internal/model"
)

// Config of a data plane. The zero value works.
type Config struct {
	// Sysctls is where the kernel's settings are to be read; default /proc/sys.
	Sysctls string
	Log     *slog.Logger
	// Changed is called when the observed state may have changed.
	Changed func()
}

// recheck is how often the kernel is compared with what it should have.
const recheck = 10 * time.Second

// Plane is the data plane. Its methods may be called concurrently.
type Plane struct {
	config Config

	work    sync.Mutex // held while the kernel is changed
	kernel  *kernel
	present map[string]*objects                          // by id; nil: not read yet
	desired map[string]change                            // to and spec
	hoped   map[model.FrontendKey]model.FrontendObserved // if the kernel takes all of it
	last    model.Balancing
	cuts    map[cutting]bool // whose flows are to end, and may not have

	mu       sync.Mutex
	observed map[model.FrontendKey]model.FrontendObserved
	shares   map[model.FrontendKey]spec
}

// New returns a data plane. It changes nothing: the rules of an earlier process stay in
// effect until Set replaces them.
func New(c Config) (*Plane, error) {
	if c.Sysctls == "" {
		c.Sysctls = "/proc/sys"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	k, err := open()
	if err != nil {
		return nil, err
	}
	return &Plane{config: c, kernel: k, cuts: map[cutting]bool{}}, nil
}

// Supports returns nil if nftables of this kernel can balance the frontend.
func (p *Plane) Supports(f *model.Balanced) error {
	if err := supports(f.Frontend); err != nil {
		return err
	}
	if err := p.kernel.probe(); err != nil {
		return err
	}
	if f.Frontend.Listener != "" {
		return nil
	}
	return p.forwards(f.Frontend.VIP)
}

// forwards is nil if the kernel forwards packets of the family.
func (p *Plane) forwards(a netip.Addr) error {
	name := "net.ipv4.ip_forward"
	if a.Is6() {
		name = "net.ipv6.conf.all.forwarding"
	}
	text, err := os.ReadFile(filepath.Join(p.config.Sysctls, strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return unsupported("read %s: %w", name, err)
	}
	if strings.TrimSpace(string(text)) == "0" {
		return unsupported("%s is 0, so the kernel drops packets for backends: set it to 1 (sysctl -w %s=1) if this machine may forward", name, name)
	}
	return nil
}

// Set makes the kernel balance the frontends of b whose VIP is at b.Machine.
func (p *Plane) Set(b model.Balancing) error {
	p.work.Lock()
	defer p.work.Unlock()
	if p.desired != nil && p.last.Machine == b.Machine && maps.Equal(p.last.Frontends, b.Frontends) && maps.Equal(p.last.Unready, b.Unready) {
		return nil
	}
	desired := map[string]change{}
	observed := map[model.FrontendKey]model.FrontendObserved{}
	for key, f := range b.Frontends {
		if !slices.Contains(f.Frontend.Machines, b.Machine) {
			continue
		}
		o := model.FrontendObserved{FrontendKey: key, DataPlane: model.DataPlaneNFTables, State: model.FrontendBalanced, Mode: model.ModeNAT}
		if err := p.Supports(f); err != nil {
			o.State, o.Mode, o.Message = model.FrontendRefused, model.ModeAuto, err.Error()
		} else {
			c := change{id: id(key), key: key}
			c.spec, o.Available, o.Message = compile(b, f)
			c.to = c.spec.objects()
			desired[c.id] = c
			if c.spec.local || f.Frontend.Mode == model.ModeLocal {
				o.Mode = model.ModeLocal
			}
		}
		observed[key] = o
	}
	hoped := maps.Clone(observed)
	if err := p.sync(desired, observed); err != nil {
		return err
	}
	p.desired, p.hoped, p.last = desired, hoped, b
	p.last.Frontends, p.last.Unready = maps.Clone(b.Frontends), maps.Clone(b.Unready)
	p.publish(observed)
	return nil
}

// sync brings the kernel to desired. What it refuses is marked in observed, and goes away
// if it was not there before.
func (p *Plane) sync(desired map[string]change, observed map[model.FrontendKey]model.FrontendObserved) error {
	if p.present == nil {
		if len(desired) == 0 {
			// Nothing to do must not begin with making a table.
			there, _, err := p.kernel.exists()
			if errors.Is(err, errors.ErrUnsupported) {
				return nil
			}
			if err != nil || !there {
				return err
			}
		}
		if err := p.kernel.prepare(); err != nil {
			return err
		}
		present, err := p.kernel.read()
		if err != nil {
			return err
		}
		p.present = present
	}
	var changes []change
	empty := newObjects()
	for id, c := range desired {
		if c.from = p.present[id]; c.from == nil {
			c.from = empty
		}
		if !c.from.equal(c.to) {
			changes = append(changes, c)
		}
	}
	for id, from := range p.present {
		if _, stays := desired[id]; !stays {
			changes = append(changes, change{id: id, from: from, to: empty})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.key.Compare(b.key) })
	refused := p.kernel.apply(changes)
	for _, c := range changes {
		if err := refused[c.id]; err != nil {
			p.present[c.id] = c.from
			o := observed[c.key]
			o.State, o.Mode, o.Available, o.Message = model.FrontendRefused, model.ModeAuto, 0, err.Error()
			observed[c.key] = o
			continue
		}
		p.config.Log.Debug("changed rules", "frontend", c.key.String())
		p.present[c.id] = c.to
		if len(c.to.elements) == 0 {
			delete(p.present, c.id)
		}
		for _, x := range c.cut() {
			p.cuts[x] = true
		}
	}
	// Those of the last time, too, if that failed; but not of a backend that is back.
	maps.DeleteFunc(p.cuts, func(x cutting, _ bool) bool {
		o := p.present[id(x.key)]
		return o != nil && o.has(x)
	})
	if len(refused) > 0 {
		// What is in the kernel may not be what we think.
		p.present = nil
	}
	if err := disconnect(p.cuts); err != nil {
		return err
	}
	clear(p.cuts)
	return nil
}

func (p *Plane) publish(observed map[model.FrontendKey]model.FrontendObserved) {
	specs := map[model.FrontendKey]spec{}
	for _, c := range p.desired {
		if observed[c.key].State == model.FrontendBalanced {
			specs[c.key] = c.spec
		}
	}
	p.mu.Lock()
	differs := !maps.Equal(p.observed, observed)
	p.observed, p.shares = observed, specs
	p.mu.Unlock()
	if differs {
		p.config.Changed()
	}
}

// Observed are the frontends of the last Set whose VIP is at this machine, sorted by key.
func (p *Plane) Observed() []model.FrontendObserved {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.observed), func(a, b model.FrontendObserved) int { return a.Compare(b.FrontendKey) })
}

// Run reverts changes of other programs to our table, until ctx is done.
func (p *Plane) Run(ctx context.Context) error {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := p.Repair(); err != nil {
				p.config.Log.Warn("cannot compare nftables with the desired rules", "error", err)
			}
		}
	}
}

// Repair brings the kernel into the state of the last Set.
func (p *Plane) Repair() error {
	p.work.Lock()
	defer p.work.Unlock()
	if p.desired == nil {
		return nil
	}
	before := p.present
	p.present = nil
	observed := maps.Clone(p.hoped)
	if err := p.sync(p.desired, observed); err != nil {
		p.present = nil
		return err
	}
	if before != nil && p.present != nil && !maps.EqualFunc(before, p.present, (*objects).equal) {
		p.config.Log.Warn("another program changed the agent's nftables table; it was restored", "table", "inet "+tableName)
	}
	p.publish(observed)
	return nil
}

// Close ends the balancing. With leave everything stays in the kernel for the next process.
// It also stays if Set was never called.
func (p *Plane) Close(leave bool) error {
	p.work.Lock()
	defer p.work.Unlock()
	if leave || p.desired == nil {
		return nil
	}
	for _, o := range p.present {
		for _, x := range (change{from: o, to: newObjects()}).cut() {
			p.cuts[x] = true
		}
	}
	p.present, p.desired = nil, nil
	return errors.Join(p.kernel.remove(), disconnect(p.cuts))
}

// String says which data plane it is.
func (p *Plane) String() string { return fmt.Sprintf("nftables (table inet %s)", tableName) }

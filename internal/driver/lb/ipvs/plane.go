package ipvs

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
	// StateDir is where the list of our services is stored. Without it a process does not know
	// the services of an earlier process.
	StateDir string
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

	work    sync.Mutex // held while the kernel is used
	kernel  *kernel    // nil until the kernel has IPVS
	memory  *memory
	marker  marker
	noMarks error // why packets cannot be marked, once it was tried
	last    model.Balancing
	told    bool   // Set was called
	current bool   // the kernel is as last says, for all we know
	totals  totals // as last asked for

	mu       sync.Mutex
	observed map[model.FrontendKey]model.FrontendObserved
	services map[target]service
}

// New returns a data plane. It changes nothing, and works without IPVS: Supports then
// names the missing module until the module is loaded.
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
	boot, err := bootID()
	if err != nil {
		return nil, fmt.Errorf("read the kernel's boot ID: %w", err)
	}
	m, err := recall(c.StateDir, boot)
	if err != nil {
		return nil, err
	}
	r, err := newRules()
	if err != nil {
		return nil, err
	}
	return &Plane{config: c, memory: m, marker: r}, nil
}

// Supports returns nil if IPVS of this kernel can balance the frontend.
func (p *Plane) Supports(f *model.Balanced) error {
	if err := supports(f.Frontend); err != nil {
		return err
	}
	if f.Frontend.Listener != "" {
		return nil // nothing to do: the loopback takes its flows
	}
	if err := available(); err != nil {
		return err
	}
	if m := mode(f.Frontend); m != model.ModeNAT {
		return nil
	}
	name := "net.ipv4.ip_forward"
	if f.Frontend.VIP.Is6() {
		name = "net.ipv6.conf.all.forwarding"
	}
	if p.setting(name) == "0" {
		return unsupported("%s is 0, so the kernel drops answers of backends: set it to 1 (sysctl -w %s=1) if this machine may forward", name, name)
	}
	return nil
}

func (p *Plane) setting(name string) string {
	text, err := os.ReadFile(filepath.Join(p.config.Sysctls, strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Set makes the kernel balance the frontends of b whose VIP is at b.Machine.
func (p *Plane) Set(b model.Balancing) error {
	p.work.Lock()
	defer p.work.Unlock()
	if p.current && p.last.Machine == b.Machine && maps.Equal(p.last.Frontends, b.Frontends) && maps.Equal(p.last.Unready, b.Unready) {
		return nil
	}
	p.last, p.told = b, true
	p.last.Frontends, p.last.Unready = maps.Clone(b.Frontends), maps.Clone(b.Unready)
	return p.sync()
}

// desired are the services of the last Set, and what is observed if all goes well. marks
// says why packets cannot be marked, if they cannot.
func (p *Plane) desired(others map[target]bool, marks error) (map[target]service, map[model.FrontendKey]model.FrontendObserved) {
	observed := map[model.FrontendKey]model.FrontendObserved{}
	owners := map[model.FrontendKey]model.Object{}
	var single []service
	for _, key := range slices.SortedFunc(maps.Keys(p.last.Frontends), model.FrontendKey.Compare) {
		f := p.last.Frontends[key]
		if !slices.Contains(f.Frontend.Machines, p.last.Machine) {
			continue
		}
		o := model.FrontendObserved{FrontendKey: key, DataPlane: model.DataPlaneIPVS, State: model.FrontendBalanced, Mode: mode(f.Frontend)}
		err := p.Supports(f)
		if err == nil && others[target{key: key}] {
			err = unsupported("another program has an IPVS service for %s: remove it (ipvsadm -D), or choose another VIP or data plane", key)
		}
		if err != nil {
			o.State, o.Mode, o.Message = model.FrontendRefused, model.ModeAuto, err.Error()
			observed[key] = o
			continue
		}
		s, available, message := compile(p.last, f)
		o.Available, o.Message = available, message
		if f.Frontend.Listener == "" {
			o.Message = said(o.Message, p.limits(s, f.Frontend.Owner, marks))
			single, owners[key] = append(single, s), f.Frontend.Owner
		}
		observed[key] = o
	}
	if marks == nil {
		single = share(single, owners)
	}
	all := map[target]service{}
	for _, s := range single {
		all[s.target] = s
	}
	return all, observed
}

// limits says what affinity lacks here.
func (p *Plane) limits(s service, owner model.Object, marks error) string {
	if s.flags&flagPersistent == 0 {
		return ""
	}
	var lacks string
	if _, ok := s.signature(owner); ok && marks != nil {
		lacks = fmt.Sprintf("session affinity applies to each port separately: %v", marks)
	}
	if p.setting("net.ipv4.vs.expire_quiescent_template") == "0" {
		lacks = said(lacks, "clients with affinity stay at a draining backend: net.ipv4.vs.expire_quiescent_template is 0")
	}
	return lacks
}

func said(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// state is what the kernel has.
type state struct {
	present map[target]service // ours
	others  map[target]bool
	marks   map[model.FrontendKey]uint32
	noMarks error // why packets cannot be marked
}

// look reads what the kernel has of ours, and which services are others'.
func (p *Plane) look() (s state, err error) {
	if s.marks, s.noMarks = p.marker.read(); s.noMarks == nil {
		s.noMarks = p.noMarks
	}
	if s.noMarks != nil && !errors.Is(s.noMarks, errors.ErrUnsupported) {
		return s, s.noMarks
	}
	s.present, s.others, err = p.kernel.read(func(t target) bool {
		return t.mark != 0 && t.mark&markMask == markBase || t.mark == 0 && p.memory.ours[t.key]
	})
	return s, err
}

// sync brings the kernel to what the last Set said.
func (p *Plane) sync() error {
	p.current = false
	var now state
	err := p.open()
	if err == nil {
		now, err = p.look()
	} else if errors.Is(err, errors.ErrUnsupported) {
		err = nil // every frontend says so below
	}
	if err != nil {
		return err
	}
	want, observed := p.desired(now.others, now.noMarks)
	// A service is remembered from before it is there until after it is gone, and packets
	// have a mark while its service is there.
	ours := map[model.FrontendKey]bool{}
	for t := range want {
		if t.mark == 0 {
			ours[t.key] = true
		}
	}
	whole := maps.Clone(ours)
	maps.Copy(whole, p.memory.ours)
	if err := p.remember(whole); err != nil {
		return err
	}
	complete := true
	kept := map[target]bool{} // that are there, and cannot be changed
	for _, t := range sortedTargets(want) {
		from, there := now.present[t]
		if there && from.equal(want[t]) {
			continue
		}
		if err := p.kernel.change(from, there, want[t]); err != nil {
			complete, kept[t] = false, there
			for _, k := range want[t].frontends {
				o := observed[k]
				o.State, o.Mode, o.Available, o.Message = model.FrontendRefused, model.ModeAuto, 0, err.Error()
				observed[k] = o
			}
			delete(want, t)
		}
	}
	marked := map[model.FrontendKey]uint32{}
	for t, s := range want {
		for _, k := range s.frontends {
			if t.mark != 0 {
				marked[k] = t.mark
			}
		}
	}
	for k, m := range now.marks {
		if _, moved := marked[k]; !moved && kept[target{mark: m, is4: k.VIP.Is4()}] {
			marked[k] = m
		}
	}
	if !maps.Equal(now.marks, marked) && now.noMarks == nil {
		err := p.marker.write(now.marks, marked)
		if errors.Is(err, errors.ErrUnsupported) && p.noMarks == nil {
			p.noMarks = err // the services of marks go again
			return p.sync()
		} else if err != nil {
			return err
		}
	}
	for _, t := range sortedTargets(now.present) {
		if _, stays := want[t]; !stays && !kept[t] {
			if err := p.kernel.remove(now.present[t]); err != nil {
				return err
			}
		}
	}
	if complete {
		if err := p.remember(ours); err != nil {
			return err
		}
	}
	p.current = complete
	p.publish(want, observed)
	return nil
}

func (p *Plane) remember(ours map[model.FrontendKey]bool) error {
	if maps.Equal(p.memory.ours, ours) {
		return nil
	}
	return p.memory.keep(ours)
}

func (p *Plane) open() error {
	if p.kernel != nil {
		return nil
	}
	k, err := openKernel()
	if err != nil {
		return err
	}
	p.kernel = k
	return nil
}

func (p *Plane) publish(services map[target]service, observed map[model.FrontendKey]model.FrontendObserved) {
	p.mu.Lock()
	differs := !maps.Equal(p.observed, observed)
	p.observed, p.services = observed, services
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

// Run reverts changes of other programs to our services, until ctx is done.
func (p *Plane) Run(ctx context.Context) error {
	tick := time.NewTicker(recheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := p.Repair(); err != nil {
				p.config.Log.Warn("cannot compare IPVS with the desired services", "error", err)
			}
		}
	}
}

// Repair brings the kernel into the state of the last Set.
func (p *Plane) Repair() error {
	p.work.Lock()
	defer p.work.Unlock()
	if !p.told {
		return nil
	}
	return p.sync()
}

// Close ends the balancing. With leave everything stays in the kernel for the next process.
// It also stays if Set was never called.
func (p *Plane) Close(leave bool) error {
	p.work.Lock()
	defer p.work.Unlock()
	if leave || !p.told || p.kernel == nil {
		return nil
	}
	p.told, p.current = false, false
	now, err := p.look()
	if err != nil {
		return err
	}
	for _, t := range sortedTargets(now.present) {
		err = errors.Join(err, p.kernel.remove(now.present[t]))
	}
	if err != nil {
		return err // they are remembered, so that the next process knows whose they are
	}
	if now.noMarks == nil {
		err = p.marker.remove()
	}
	return errors.Join(err, p.remember(map[model.FrontendKey]bool{}))
}

// String says which data plane it is.
func (p *Plane) String() string { return "IPVS" }

// addressed is the backend of a frontend for a destination: that of a mark keeps the port.
func addressed(k model.FrontendKey, a netip.AddrPort) netip.AddrPort {
	if a.Port() == 0 {
		return netip.AddrPortFrom(a.Addr(), k.Port)
	}
	return a
}

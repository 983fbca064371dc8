package watch

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/near"
	"fairlead.dev/internal/southbound"
)

// maxTapFrontends is how many frontends one viewer may watch.
const maxTapFrontends = 64

// flowScope is what a tap of flows is about now.
type flowScope struct {
	owners   map[model.FrontendKey]string
	machines map[string]bool // that have one of the frontends
	names    []string        // what there would be to watch, if nothing matches
}

// TapFlows calls show with flows of clients as they begin, move and end, until ctx is done or show fails. It logs who looks,
// and at what.
func (v *Viewers) TapFlows(ctx context.Context, who string, q model.FlowTapQuery, show func(model.FlowTapEvent) error) error {
	if err := served(v.config.Plane); err != nil {
		return err
	}
	scope, err := v.flowScope(ctx, q)
	if err != nil {
		return err
	}
	release, err := v.open()
	if err != nil {
		return err
	}
	defer release()
	t := v.config.Machines.FlowTap()
	defer t.Close()
	view := &flowView{viewers: v, query: q, tap: t, show: show, began: v.config.Now(), said: map[string]model.FlowTapMachine{}}
	view.aim(scope)
	v.config.Log.Info("flows are tapped", "by", who, "of", q.Of, "namespace", q.Namespace, "client", q.Client, "backend", q.Backend)
	defer func() {
		v.config.Log.Info("flows are tapped no more", "by", who, "of", q.Of, "namespace", q.Namespace, "shown", view.shown, "for", v.config.Now().Sub(view.began).Round(time.Second))
	}()
	return view.run(ctx)
}

// flowView is one viewer.
type flowView struct {
	viewers *Viewers
	query   model.FlowTapQuery
	tap     *southbound.FlowTap
	show    func(model.FlowTapEvent) error
	began   time.Time
	scope   flowScope
	filter  model.FlowTap
	told    []model.FrontendKey // that the viewer knows of
	said    map[string]model.FlowTapMachine
	shown   int
}

// aim has machines show what a scope says.
func (v *flowView) aim(s flowScope) {
	frontends := slices.SortedFunc(maps.Keys(s.owners), model.FrontendKey.Compare)
	v.scope = s
	if !slices.Equal(frontends, v.filter.Frontends) {
		v.filter = model.FlowTap{Frontends: frontends, Client: v.query.Client, Backend: v.query.Backend}
		v.tap.Want(v.filter)
	}
}

func (v *flowView) run(ctx context.Context) error {
	ticker := time.NewTicker(tapLook)
	defer ticker.Stop()
	if err := v.look(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-v.tap.Events:
			owner, ours := v.scope.owners[e.Frontend]
			if !ours || !v.filter.Matches(&e) { // a machine is not trusted to have looked
				continue
			}
			e.Owner = owner
			if _, said := v.said[e.Machine]; !said && v.scope.machines[e.Machine] { // what the machine cannot tell comes first
				if err := v.look(); err != nil {
					return err
				}
			}
			v.shown++
			if err := v.show(model.FlowTapEvent{Event: &e}); err != nil {
				return err
			}
		case <-ticker.C:
			scope, err := v.viewers.flowScope(ctx, v.query)
			if err == nil || len(scope.owners) == 0 && scope.names != nil {
				v.aim(scope) // what is gone is watched no more
			}
			if err := v.look(); err != nil {
				return err
			}
		}
	}
}

// look says how machines are. It also says that the stream lives.
func (v *flowView) look() error {
	e := model.FlowTapEvent{Dropped: v.tap.Dropped()}
	if !slices.Equal(v.told, v.filter.Frontends) {
		v.told = v.filter.Frontends
		e.Frontends = v.told
	}
	late := v.viewers.config.Now().Sub(v.began) >= tapPatience
	now, states := map[string]model.FlowTapMachine{}, v.tap.Machines()
	for name := range v.scope.machines {
		m, s := model.FlowTapMachine{Machine: name, Notes: states[name].Notes}, states[name]
		if !s.Answered || !s.Able {
			if !late {
				continue
			}
			m.Unable = "it does not answer: its agent is of an earlier version, has just connected, or is away"
		}
		now[name] = m
	}
	if !reflect.DeepEqual(now, v.said) {
		v.said = now
		e.Machines = []model.FlowTapMachine{}
		for _, name := range slices.Sorted(maps.Keys(now)) {
			e.Machines = append(e.Machines, now[name])
		}
	}
	return v.show(e)
}

// flowScope are the frontends that a query selects.
func (v *Viewers) flowScope(ctx context.Context, q model.FlowTapQuery) (flowScope, error) {
	s := flowScope{owners: map[model.FrontendKey]string{}, machines: map[string]bool{}}
	inside := func(f *model.Frontend) bool { return q.Namespace == "" || f.Owner.Namespace == q.Namespace }
	list, err := v.config.Loop.Frontends(ctx, func(f *model.Frontend) bool { return inside(f) && f.Named(q.Of) })
	if err == nil && len(list) == 0 {
		var others []*model.Frontend
		others, err = v.config.Loop.Frontends(ctx, inside)
		s.names = []string{}
		for _, f := range others {
			s.names = append(s.names, f.String(), f.Owner.Namespace+"/"+f.Owner.Name)
		}
	}
	for _, f := range list {
		s.owners[f.FrontendKey] = f.Owner.String()
		for _, name := range f.Machines {
			s.machines[name] = true
		}
	}
	switch {
	case err != nil:
		return flowScope{}, err
	case len(s.owners) > maxTapFrontends:
		return s, console.None(fmt.Sprintf("%d frontends match, and at most %d are shown at once: name one, or its owner", len(s.owners), maxTapFrontends))
	case len(s.owners) == 0 && len(s.names) == 0:
		return s, console.None("no frontend matches: none is balanced in the kernel, or none in this namespace")
	case len(s.owners) == 0:
		return s, console.None(fmt.Sprintf("no frontend matches %q: want a frontend (tcp://VIP:PORT), a VIP, or NAMESPACE/NAME of its owner%s", q.Of, near.DidYouMean(q.Of, s.names)))
	}
	return s, nil
}

package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"fairlead.dev/internal/explain"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/tap"
	"fairlead.dev/internal/traffic"
)

const (
	// tapLook is how often it is looked whether machines answer.
	tapLook = time.Second
	// tapPatience is how long a machine may take to answer before that is said.
	tapPatience = 3 * time.Second
)

// Tap calls show with requests of clients as machines answer them, until ctx is done or show fails. It logs who looks, and
// at what.
func (v *Viewers) Tap(ctx context.Context, who string, f model.TapFilter, show func(model.TapEvent) error) error {
	if err := served(v.config.Plane); err != nil {
		return err
	}
	release, err := v.open()
	if err != nil {
		return err
	}
	defer release()
	note, err := v.config.Loop.TapNote(ctx, f)
	if err != nil {
		return err
	}
	t := v.config.Machines.Tap(f, 0)
	defer t.Close()
	shown, began := 0, v.config.Now()
	v.config.Log.Info("requests are tapped", "by", who, "filter", f.String())
	defer func() {
		v.config.Log.Info("requests are tapped no more", "by", who, "filter", f.String(), "shown", shown, "for", v.config.Now().Sub(began).Round(time.Second))
	}()
	ticker := time.NewTicker(tapLook)
	defer ticker.Stop()
	said := map[string]model.TapMachine{}
	if err := show(model.TapEvent{Note: note}); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-t.Records:
			// A machine is not trusted to have looked.
			if tap.Redact(&r); !tap.Matches(f, &r, traffic.Owner) {
				continue
			}
			decided(&r)
			if err := show(model.TapEvent{Record: &r}); err != nil {
				return err
			}
			shown++
		case <-ticker.C:
			e := model.TapEvent{Dropped: t.Dropped()}
			late := v.config.Now().Sub(began) >= tapPatience
			now := map[string]model.TapMachine{}
			for name, s := range t.Machines() {
				m := model.TapMachine{Machine: name, Percent: s.Percent, Unable: s.Unable}
				if s.Percent == 0 && m.Unable == "" {
					if !late {
						continue
					}
					m.Unable = "it does not answer"
				}
				if m.Unable == "" || late {
					now[name] = m
				}
			}
			if !maps.Equal(now, said) {
				said = now
				e.Machines = []model.TapMachine{}
				for _, name := range slices.Sorted(maps.Keys(now)) {
					e.Machines = append(e.Machines, now[name])
				}
			}
			if err := show(e); err != nil { // also says that the stream lives
				return err
			}
		}
	}
}

// open takes one of the taps that there may be, until release is called.
func (v *Viewers) open() (release func(), err error) {
	if v.tapped.Add(1) > model.MaxTaps {
		v.tapped.Add(-1)
		return nil, fmt.Errorf("%d taps are open already: close one", model.MaxTaps)
	}
	return func() { v.tapped.Add(-1) }, nil
}

// decided adds what an explanation says of the route: the resource and the rule that the request follows, and the Service.
func decided(r *model.TapRecord) {
	if source := explain.RouteOf(r.Route); source.Kind != "" {
		r.Owner, r.Rule = source.Object.String(), source.Field
	}
	if namespace, name, is := r.Group.Service(); is {
		r.Service = namespace + "/" + name
	}
}

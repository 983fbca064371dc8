package delta

import (
	"fmt"
	"slices"
)

// verify recomputes from scratch what the stream keeps incrementally.
func verify(st *Stream) error {
	names := 0
	for _, s := range st.subs {
		needed := 0
		inFlight := map[*item]bool{}
		if s.outstanding != nil {
			for _, it := range s.outstanding.items {
				inFlight[it] = true
			}
		}
		queued := map[*item]int{}
		for _, it := range s.queue {
			queued[it]++
		}
		grouped := map[*item]int{}
		for _, g := range s.retry {
			for _, it := range g {
				grouped[it]++
			}
		}
		for i, it := range s.debts.list {
			if it.place != i+1 || s.items[it.name] != it {
				return fmt.Errorf("%s %s: debt %d is at place %d, dropped %v", s.typ, it.name, i, it.place, it.dropped)
			}
			if i > 0 && it.owed.Compare(s.debts.list[(i-1)/2].owed) < 0 {
				return fmt.Errorf("%s %s: an older debt below a newer one", s.typ, it.name)
			}
		}
		held := 0
		for el := s.held.Front(); el != nil; el = el.Next() {
			if it := el.Value.(*item); it.held != el || len(it.past) == 0 || s.items[it.name] != it {
				return fmt.Errorf("%s %s: listed with %d past versions, dropped %v", s.typ, it.name, len(it.past), it.dropped)
			}
		}
		for name, it := range s.items {
			if (it.needed || it.inFlight) && len(st.options.Last) > 0 && it.place == 0 {
				return fmt.Errorf("%s %s: lacks something since %s, which is not listed", s.typ, name, it.owed)
			}
			if len(it.past) > 0 {
				held++
			}
			if len(it.past) > 0 && (!it.needed || st.rank(s) < 0 || it.past[len(it.past)-1].entry != it.want) {
				return fmt.Errorf("%s %s: past versions of an item that waits for nothing", s.typ, name)
			}
			if it.name != name || it.dropped {
				return fmt.Errorf("%s %s: wrong item %+v", s.typ, name, it)
			}
			if it.explicit {
				names++
				if len(it.watches) != len(st.layers) {
					return fmt.Errorf("%s %s: %d watches", s.typ, name, len(it.watches))
				}
			} else if !s.wild {
				return fmt.Errorf("%s %s: item that nobody asked for", s.typ, name)
			} else if len(it.watches) != 0 {
				return fmt.Errorf("%s %s: watches left", s.typ, name)
			}
			if it.want != st.lookup(s.typ, name) {
				return fmt.Errorf("%s %s: stale want", s.typ, name)
			}
			if it.needed != it.needs() {
				return fmt.Errorf("%s %s: needed %v, needs %v", s.typ, name, it.needed, it.needs())
			}
			if it.idle() {
				return fmt.Errorf("%s %s: idle item kept", s.typ, name)
			}
			if it.needed {
				needed++
				if queued[it]+grouped[it] == 0 {
					return fmt.Errorf("%s %s: needed, but neither queued nor grouped", s.typ, name)
				}
			}
			if it.queued != (queued[it] == 1) || it.grouped != (grouped[it] == 1) || queued[it] > 1 || grouped[it] > 1 {
				return fmt.Errorf("%s %s: queued %d grouped %d, flags %+v", s.typ, name, queued[it], grouped[it], it)
			}
			if it.inFlight != inFlight[it] {
				return fmt.Errorf("%s %s: in flight %v", s.typ, name, it.inFlight)
			}
		}
		if held != s.held.Len() {
			return fmt.Errorf("%s: %d items have past versions, %d are listed", s.typ, held, s.held.Len())
		}
		if needed != s.needed {
			return fmt.Errorf("%s: needed %d, counted %d", s.typ, s.needed, needed)
		}
		if s.wild != (len(s.all) == len(st.layers) && len(s.all) > 0) && len(st.layers) > 0 {
			return fmt.Errorf("%s: wild %v with %d watches", s.typ, s.wild, len(s.all))
		}
	}
	if st.names < names {
		return fmt.Errorf("counted %d names, has %d", st.names, names)
	}
	return nil
}

// verifyRefusals compares what the owner was told of refusals with what they are.
func verifyRefusals(st *Stream, told map[Event]bool) error {
	count := 0
	for _, s := range st.subs {
		for name, it := range s.items {
			if it.refusal != nil {
				count++
				if e := s.event(name, it.refusal.version, it.refusal); !told[e] {
					return fmt.Errorf("a refusal was not told: %+v", e)
				}
			}
		}
	}
	if len(told) != count {
		return fmt.Errorf("%d refusals told, there are %d: %+v", len(told), count, told)
	}
	return nil
}

// tells keeps in told what Options.Refused tells.
func tells(told map[Event]bool) func(Event) {
	return func(e Event) {
		for was := range told {
			if was.Type == e.Type && was.Name == e.Name {
				delete(told, was)
			}
		}
		if e.Refused {
			told[e] = true
		}
	}
}

// verifySet checks that every watch knows its place.
func verifySet(s *Set, open ...*Stream) error {
	check := func(t Type, name string, all bool, list *watchers) error {
		for i, w := range list.list {
			if w.at != i || w.name != name || w.all != all || w.set != s || w.sub.typ != t {
				return fmt.Errorf("%s %q: misplaced watch", t, name)
			}
			if !slices.Contains(open, w.sub.stream) {
				return fmt.Errorf("%s %q: watch of a closed stream", t, name)
			}
		}
		return nil
	}
	for t, sh := range s.shelves {
		if err := check(t, "", true, &sh.wild); err != nil {
			return err
		}
		for name, list := range sh.named {
			if len(list.list) == 0 {
				return fmt.Errorf("%s %q: empty list kept", t, name)
			}
			if err := check(t, name, false, list); err != nil {
				return err
			}
		}
	}
	return nil
}

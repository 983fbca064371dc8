package memo

import "iter"

// few is up to how many values are in a slice.
const few = 8

// Parts are values by who they are by. Most have one or two, for which a map would take half a kilobyte.
type Parts[By comparable, V any] struct {
	few  []byValue[By, V]
	many map[By]V // instead, above few
}

type byValue[By comparable, V any] struct {
	by    By
	value V
}

// Len is how many there are.
func (p *Parts[By, V]) Len() int { return len(p.few) + len(p.many) }

// Get returns the value by one, and whether there is one.
func (p *Parts[By, V]) Get(by By) (V, bool) {
	for i := range p.few {
		if p.few[i].by == by {
			return p.few[i].value, true
		}
	}
	v, found := p.many[by]
	return v, found
}

// All are the values, in no order.
func (p *Parts[By, V]) All() iter.Seq2[By, V] {
	return func(yield func(By, V) bool) {
		for _, f := range p.few {
			if !yield(f.by, f.value) {
				return
			}
		}
		for by, v := range p.many {
			if !yield(by, v) {
				return
			}
		}
	}
}

// Set sets the value by one. It reports whether there was none before.
func (p *Parts[By, V]) Set(by By, v V) bool {
	if p.many != nil {
		_, had := p.many[by]
		p.many[by] = v
		return !had
	}
	for i := range p.few {
		if p.few[i].by == by {
			p.few[i].value = v
			return false
		}
	}
	if len(p.few) < few {
		p.few = append(p.few, byValue[By, V]{by, v})
		return true
	}
	p.many = make(map[By]V, 2*few)
	for _, f := range p.few {
		p.many[f.by] = f.value
	}
	p.few, p.many[by] = nil, v
	return true
}

// Delete takes the value by one out.
func (p *Parts[By, V]) Delete(by By) {
	if p.many != nil {
		delete(p.many, by)
		return
	}
	for i := range p.few {
		if p.few[i].by == by {
			last := len(p.few) - 1
			p.few[i], p.few[last] = p.few[last], byValue[By, V]{}
			p.few = p.few[:last]
			return
		}
	}
}

func (p *Parts[By, V]) fold(by By, _, after *V) {
	if after == nil {
		p.Delete(by)
	} else {
		p.Set(by, *after)
	}
}

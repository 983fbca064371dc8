package memo

// Context is how a function reads tables and puts parts into Sums. It must not be used after the function returned.
type Context struct {
	of   *meta
	cell cell // nil: reads are not recorded
	puts record
}

// Peek is a Context that reads between two Runs and is not told of changes.
func (g *Graph) Peek() *Context { return &Context{of: &meta{g: g, name: "Peek"}} }

// read records that the function reads a cell.
func (c *Context) read(of *meta, target cell) {
	if c.cell == nil {
		return
	}
	if c.of.g.strict && !c.of.reads[of] {
		panic("memo: " + c.of.name + " does not declare that it reads " + of.name)
	}
	if target.part().readers.Set(c.cell, struct{}{}) {
		w := c.cell.part().work
		w.reads = append(w.reads, target)
	}
}

// part is what one function put under one key of a Sum.
type part interface {
	id() any
	retract()
}

// record matches what a function puts with what it put before.
type record struct {
	before []part
	next   int         // where the next one is likely to be
	index  map[any]int // of before, made when the order is another
	after  []part
}

// likely is what was put before in the place of what is put now; nil when there is none.
func (r *record) likely() part {
	if r.next < len(r.before) {
		return r.before[r.next]
	}
	return nil
}

// take takes out the likely one.
func (r *record) take() {
	r.before[r.next] = nil
	r.next++
}

// find returns what was put before under an id, and takes it out; nil when there is none.
func (r *record) find(id any) part {
	if r.index == nil {
		r.index = make(map[any]int, len(r.before))
		for i, p := range r.before {
			if p != nil {
				r.index[p.id()] = i
			}
		}
	}
	i, known := r.index[id]
	if !known || r.before[i] == nil {
		return nil
	}
	p := r.before[i]
	r.next = i
	r.take()
	return p
}

// end takes back what was not put again, and returns what is put now.
func (r *record) end() []part {
	for _, p := range r.before {
		if p != nil {
			p.retract()
		}
	}
	return r.after
}

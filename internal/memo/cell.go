package memo

import "slices"

// cell is one value of a table, or all that a Scan looks at.
type cell interface {
	Any
	compute()
	release() // forgets it where it is not needed
}

// node is the part of a cell that is the same for all types.
type node struct {
	cell    // of which it is the part
	readers Parts[*node, struct{}]
	*work         // nil where no function ran
	held    int32 // how many drivers name the key, parts a Sum has, 1 for a value of an Input
	has     bool  // a value
	dirty   bool  // in the queue
}

// work is what a function did when it last ran.
type work struct {
	reads []*node
	puts  []part
}

// stale has a cell computed again.
func (n *node) stale() {
	if !n.dirty {
		m := n.about()
		n.dirty, m.queue = true, append(m.queue, n)
	}
}

// forget removes a cell from the readers of all that it read.
func (n *node) forget() {
	if n.work == nil {
		n.work = &work{}
	}
	m := n.about()
	for _, read := range n.reads {
		if read.readers.Delete(n); read.readers.Len() == 0 {
			m.g.idle = append(m.g.idle, read)
		}
	}
	m.size.Reads -= len(n.reads)
	clear(n.reads)
	n.reads = n.reads[:0]
}

// Context is how a function reads tables and puts parts into Sums. It must not be used after the function returned.
type Context struct {
	node   *node       // nil: reads are not recorded
	before []part      // from when the function last ran; nil where one was put again
	next   int         // of before, when the order is as before
	index  map[any]int // of before by id, made when the order is another
	after  []part
}

// Peek returns a Context for reads between Runs. Such a read is not recorded, and what is computed for it is not kept.
func (g *Graph) Peek() *Context { return &Context{} }

// read records that the function reads a cell.
func (c *Context) read(of *node) {
	m := c.node.about()
	if m.g.strict && !slices.Contains(m.before, of.about()) {
		panic("memo: " + m.name + " does not declare that it reads " + of.about().name)
	}
	if of.readers.Set(c.node, struct{}{}) {
		c.node.reads = append(c.node.reads, of)
		m.size.Reads++
	}
}

// part is a value that one function put under one key of a Sum.
type part interface {
	id() any
	retract()
}

// find makes the part with an id the next one, and returns it; nil when there is none.
func (c *Context) find(id any) part {
	if c.index == nil {
		c.index = make(map[any]int, len(c.before))
		for i, p := range c.before {
			if p != nil {
				c.index[p.id()] = i
			}
		}
	}
	i, known := c.index[id]
	if !known {
		return nil
	}
	c.next = i
	return c.before[i]
}

// end retracts the parts that were not put again, and returns those that are put now.
func (c *Context) end() []part {
	for _, p := range c.before {
		if p != nil {
			p.retract()
		}
	}
	return exact(c.after)
}

// exact is a slice without room for more: there are very many, which seldom grow.
func exact[E any](s []E) []E {
	if cap(s) > len(s) {
		return slices.Clone(s)
	}
	return s
}

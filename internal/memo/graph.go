package memo

import "slices"

// Graph holds tables and keeps their values up to date. Declare all tables, then Seal it.
type Graph struct {
	tables []*meta // as they were declared; once sealed, each after all that it depends on
	sealed bool
	strict bool
	run    uint32 // above that of a cell that was never computed
	idle   []cell // that may not be needed any more
}

// New returns an empty Graph.
func New() *Graph { return &Graph{run: 1} }

// Strict has a Graph panic where a function reads or puts without a declaration, where a value is computed twice in
// one Run, and where two parts that a Sum keeps have one key and one author. It is for tests: without it an
// undeclared read is recorded like any other, and may see a value that is about to change.
func (g *Graph) Strict() { g.strict = true }

// Any is a table of any type.
type Any interface{ about() *meta }

// meta is the part of a table that is the same for all types.
type meta struct {
	g       *Graph
	name    string
	before  []*meta // must be up to date before it
	queue   []cell  // to compute in the next Run
	size    Size
	ranked  bool // it has its place in Graph.tables
	ranking bool // its place is being found
	lazy    bool // computes a value when it is read
	pushes  bool // puts parts, or names keys of another table
}

func (m *meta) about() *meta { return m }

// Option declares what a function reads and puts.
type Option struct{ reads, puts []Any }

// Reads declares the tables that a function reads, besides its drivers.
func Reads(tables ...Any) Option { return Option{reads: tables} }

// Puts declares the Sums that a function puts parts into.
func Puts(sums ...Any) Option { return Option{puts: sums} }

func (g *Graph) declare(name string, options ...Option) *meta {
	m := &meta{g: g, name: name}
	m.mustBeOpen()
	g.tables = append(g.tables, m)
	for _, o := range options {
		for _, t := range o.reads {
			m.before = append(m.before, t.about())
		}
		for _, s := range o.puts {
			m.pushes, s.about().before = true, append(s.about().before, m)
		}
	}
	return m
}

func (m *meta) mustBeOpen() {
	if m.g.sealed {
		panic("memo: table " + m.name + " is declared after Seal")
	}
}

// Seal ends the declarations and finds the ranks. It panics where tables depend on each other in a circle, and where
// a table needs a driver: if its values came with their readers, they would come too late for Sums and for tables
// that it drives.
func (g *Graph) Seal() {
	declared := g.tables
	g.tables, g.sealed = make([]*meta, 0, len(declared)), true
	for _, m := range declared {
		g.rank(m)
		if m.lazy && m.pushes {
			panic("memo: table " + m.name + " puts parts or drives a table, and has no driver")
		}
	}
}

// rank gives a table its place, after all that it depends on.
func (g *Graph) rank(m *meta) {
	if m.ranking {
		panic("memo: table " + m.name + " depends on itself")
	}
	if !m.ranked {
		m.ranking = true
		for _, b := range m.before {
			g.rank(b)
		}
		m.ranking, m.ranked = false, true
		g.tables = append(g.tables, m)
	}
}

// Run brings all values up to date with the Inputs.
func (g *Graph) Run() {
	if !g.sealed {
		panic("memo: Run before Seal")
	}
	g.run++
	for _, m := range g.tables {
		for _, c := range m.queue {
			c.compute()
		}
		m.queue = nil
	}
	g.sweep()
}

// Size is how many keys a table has, also keys that are read and have no value, and how many reads are recorded.
type Size struct{ Values, Reads int }

// Sizes returns the sizes of all tables that are not empty, by name.
func (g *Graph) Sizes() map[string]Size {
	sizes := map[string]Size{}
	for _, m := range g.tables {
		if m.size != (Size{}) {
			sizes[m.name] = m.size
		}
	}
	return sizes
}

// sweep forgets the cells that are not needed any more.
func (g *Graph) sweep() {
	for len(g.idle) > 0 {
		c := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		c.release()
	}
}

// cell is one value of a table.
type cell interface {
	Any
	part() *node
	compute()
	release() // forgets it where it is not needed
}

// node is the part of a cell that is the same for all types.
type node struct {
	readers Parts[cell, struct{}]
	*work        // nil where no function ran
	dirty   bool // in the queue
}

// work is what a function did when it last ran.
type work struct {
	reads []cell
	puts  []part
	run   uint32
}

func (n *node) part() *node { return n }

// stale has a cell computed again.
func stale(c cell) {
	if n := c.part(); !n.dirty {
		n.dirty = true
		c.about().queue = append(c.about().queue, c)
	}
}

// Context is how a function reads tables and puts parts into Sums. It must not be used after the function returned.
type Context struct {
	cell cell // nil: reads are not recorded
	puts record
}

// Peek returns a Context for reads between Runs. Such a read is not recorded, and what is computed for it is not kept.
func (g *Graph) Peek() *Context { return &Context{} }

// begin starts to compute a cell: it forgets what it read.
func (g *Graph) begin(c cell) *Context {
	n := c.part()
	if n.work == nil {
		n.work = &work{}
	}
	if g.strict && n.run == g.run {
		panic("memo: a value of " + c.about().name + " is computed twice in one Run")
	}
	n.run, n.dirty = g.run, false
	n.forget(g, c)
	return &Context{cell: c, puts: record{before: n.puts}}
}

// read records that the function reads a cell.
func (c *Context) read(target cell) {
	m, of := c.cell.about(), target.about()
	if m.g.strict && !slices.Contains(m.before, of) {
		panic("memo: " + m.name + " does not declare that it reads " + of.name)
	}
	if target.part().readers.Set(c.cell, struct{}{}) {
		n := c.cell.part()
		n.reads = append(n.reads, target)
		m.size.Reads++
	}
}

// forget removes a cell from the readers of all that it read.
func (n *node) forget(g *Graph, c cell) {
	if n.work == nil {
		return
	}
	for _, target := range n.reads {
		readers := &target.part().readers
		if readers.Delete(c); readers.Len() == 0 {
			g.idle = append(g.idle, target)
		}
	}
	c.about().size.Reads -= len(n.reads)
	clear(n.reads)
	n.reads = n.reads[:0]
}

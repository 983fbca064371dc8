package memo

import "fmt"

// Graph holds tables and keeps their values up to date. Declare all tables, then Seal it.
type Graph struct {
	tables []*meta
	ranked [][]*meta // by rank
	sealed bool
	strict bool
	run    uint32
	idle   []cell // that may not be needed any more
}

// New returns an empty Graph.
func New() *Graph { return &Graph{} }

// Strict has reads and puts panic that were not declared. It is for tests: without it such a read is recorded like
// any other, and may see a value that is about to change.
func (g *Graph) Strict() { g.strict = true }

// Any is a table of any type.
type Any interface{ about() *meta }

// meta is what the Graph knows of a table.
type meta struct {
	g       *Graph
	name    string
	before  []*meta // must be up to date before it
	reads   map[*meta]bool
	puts    map[*meta]bool
	rank    int // 0: not known yet, -1: being found
	compute func()
}

func (m *meta) about() *meta { return m }

func (g *Graph) declare(name string) *meta {
	if g.sealed {
		panic("memo: table " + name + " is declared after Seal")
	}
	m := &meta{g: g, name: name, reads: map[*meta]bool{}, puts: map[*meta]bool{}, compute: func() {}}
	g.tables = append(g.tables, m)
	return m
}

// Option declares something of a Table or a Scan.
type Option func(*meta)

// Reads declares the tables that a function reads.
func Reads(tables ...Any) Option {
	return func(m *meta) {
		for _, t := range tables {
			m.reads[t.about()] = true
			m.before = append(m.before, t.about())
		}
	}
}

// Puts declares the Sums that a function puts values into.
func Puts(sums ...Any) Option {
	return func(m *meta) {
		for _, s := range sums {
			m.puts[s.about()] = true
			s.about().before = append(s.about().before, m)
		}
	}
}

// Seal ends the declarations and finds the ranks. It panics where tables depend on each other in a circle.
func (g *Graph) Seal() {
	for _, m := range g.tables {
		g.find(m)
	}
	g.sealed = true
}

func (g *Graph) find(m *meta) int {
	switch {
	case m.rank > 0:
		return m.rank
	case m.rank < 0:
		panic("memo: table " + m.name + " depends on itself")
	}
	m.rank = -1
	rank := 1
	for _, b := range m.before {
		rank = max(rank, g.find(b)+1)
	}
	m.rank = rank
	for len(g.ranked) <= rank {
		g.ranked = append(g.ranked, nil)
	}
	g.ranked[rank] = append(g.ranked[rank], m)
	return rank
}

// Run brings all values up to date with the inputs.
func (g *Graph) Run() {
	if !g.sealed {
		panic("memo: Run before Seal")
	}
	g.run++
	for _, tables := range g.ranked {
		for _, m := range tables {
			m.compute()
		}
	}
	for len(g.idle) > 0 {
		c := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		c.release()
	}
}

// cell is one value of a table.
type cell interface {
	part() *node
	stale()   // has it computed again
	release() // forgets it where nobody needs it
}

// node is the part of a cell that is the same in all tables.
type node struct {
	readers Parts[cell, struct{}]
	*work         // of cells that are computed
	dirty   bool
}

// work is what a function read and put when it last ran.
type work struct {
	reads []cell
	puts  []part
	run   uint32
}

func (n *node) part() *node { return n }

// changed has all who read the cell computed again.
func (n *node) changed() {
	for c := range n.readers.All() {
		c.stale()
	}
}

// begin starts to compute a cell: it forgets what it read. A cell is computed once in a run.
func (g *Graph) begin(m *meta, c cell) *Context {
	n := c.part()
	if n.work == nil {
		n.work = &work{}
	} else if g.strict && n.run == g.run {
		panic(fmt.Sprintf("memo: a value of %s is computed twice in one run", m.name))
	}
	n.run, n.dirty = g.run, false
	g.forget(c)
	return &Context{of: m, cell: c}
}

// forget takes back everything that a cell read.
func (g *Graph) forget(c cell) {
	n := c.part()
	if n.work == nil {
		return
	}
	for i, of := range n.reads {
		readers := &of.part().readers
		if readers.Delete(c); readers.Len() == 0 {
			g.idle = append(g.idle, of)
		}
		n.reads[i] = nil
	}
	n.reads = n.reads[:0]
}

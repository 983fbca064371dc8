package memo

// Graph holds tables and keeps their values up to date. Declare all tables, then Seal it.
type Graph struct {
	tables []*meta // as they were declared; once sealed, each after all that it depends on
	sealed bool
	strict bool
	idle   []*node // that may not be needed any more
}

// New returns an empty Graph.
func New() *Graph { return &Graph{} }

// Strict has a Graph panic where a function reads or puts without a declaration, and where two parts that a Sum keeps
// have one key and one author. It is for tests: without it an undeclared read is recorded like any other, and may see
// a value that is about to change.
func (g *Graph) Strict() { g.strict = true }

// Any is a table of any type.
type Any interface{ about() *meta }

// meta is the part of a table that is the same for all types.
type meta struct {
	g       *Graph
	name    string
	before  []*meta // must be up to date before it
	queue   []*node // to compute in the next Run
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
	for _, m := range g.tables {
		for _, n := range m.queue {
			n.compute()
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
		n := g.idle[len(g.idle)-1]
		g.idle = g.idle[:len(g.idle)-1]
		n.release()
	}
}

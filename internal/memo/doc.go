// Package memo computes derived values incrementally. After a change of its Inputs it computes again the values that
// depend on them, each at most once, and stops wherever a new value equals the old one.
//
// A Graph is made of tables. Each has comparable keys and values of one type:
//
//   - An Input holds values that are set from outside.
//   - A Table holds values that a function computes from other tables, one for each key.
//   - A Sum holds what many functions put under one key: the routes of a host, how often a backend is used.
//   - A Scan looks at each value of an Input and puts what it finds into Sums: an index.
//
// A function reads other tables only through its Context, which records the read, also where there is no value. A
// change therefore leads to exactly the functions that have to run again. Parts that a function put into Sums before
// and does not put again are retracted.
//
// Tables are declared once, with the tables that they read and the Sums that they put into. Their ranks follow from
// these declarations: a table comes after all that it reads, a Sum after all that put into it. Run goes through the
// tables by rank. Seal refuses a circle of declarations. A strict Graph, for tests, refuses a read or a put that was
// not declared.
//
// A value exists while it is needed. A Table with a driver (For, ForKey, ForParts, Always) holds a value for each key
// that the driver names. A Table without one is lazy: it computes a key when it is first read, and forgets it when
// nothing reads it any more.
//
// The package does no I/O, starts no goroutine and is not safe for concurrent use. Functions must be pure: equal
// reads must give equal values and puts, and no value may be changed after it was returned, put or set.
//
// Read the files in this order; each calls only later ones:
//   - input.go: Inputs, and Scans of them
//   - sum.go: Sums and their parts
//   - table.go: Tables, and the cells that all kinds of tables have
//   - cell.go: what a cell reads and puts, recorded by a Context
//   - graph.go: the Graph, what tables declare, and a Run through them
//
// The example shows the core on one page: Inputs, a Sum and driven Tables. docs/dev/memo.md describes the rest and says what each operation costs.
package memo

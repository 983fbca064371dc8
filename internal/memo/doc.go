// Package memo computes derived values incrementally. After a change of its inputs it computes again the
// values that depend on them, each at most once, and stops wherever a new value equals the old one.
//
// A Graph is made of tables. Each has comparable keys and values of one type:
//
//   - An Input holds values that are set from outside.
//   - A Table holds values that a function computes from other tables, one for each key.
//   - A Sum holds, for each key, what several functions put there: who claims a host, how often a backend is used.
//   - A Scan looks at each value of an Input and puts what it finds into Sums: an index.
//
// A function reads other tables through its Context alone, which records what it read, whether or not there was a
// value. So a change leads to exactly the functions that have to run again. What a function put into Sums before
// and does not put again is taken back.
//
// Tables are declared once, with the tables that they read and the Sums that they put into. From these
// declarations follow ranks: a table has a higher rank than everything that it reads, and a Sum than everything
// that puts into it. Run goes through the tables by rank. A cycle of declarations is refused when the Graph is
// sealed; a read or put that was not declared is refused in a strict Graph, as tests use it.
//
// A value exists while somebody needs it. A Table with a driver (For, ForKey, ForParts) has a value for each key
// that the driver names; one without a driver computes a key when it is first read, and forgets it when nobody
// reads it any more.
//
// The package does no I/O, starts no goroutine and is not safe for concurrent use. Functions must be pure: equal
// reads must give equal values and puts, and no value may be changed after it was returned, put or set.
package memo

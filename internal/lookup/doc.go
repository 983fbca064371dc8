// Package lookup makes the tables that say which backend takes a new flow.
//
// A table is rows of up to three backends. The first takes the new flows of the row, the
// others may own older ones: a packet that the first does not know travels on to them. A
// table is a pure function of its members, so load balancers that share nothing agree, and
// one that has just started agrees with one that saw every change.
//
// Rows rank members by weighted rendezvous (Thaler and Ravishankar 1998; Schindelhauer and
// Schomaker 2005): of each member -ln(u)/weight, u a hash of row and member, the smallest
// first. A member that comes or goes moves only its own share. Random shares differ by
// several percent, so each member has a price, a factor near 1 by which its costs are
// multiplied, that brings its share to its weight; it chooses between the first two of a
// row only. The owner of a row is thus always one of its first two, which are among the
// three of the row after one member came, left, drained or changed its weight (ADR 23).
//
// The package does no I/O, reads no clock and keeps no state. All arithmetic gives the same
// on every processor.
package lookup

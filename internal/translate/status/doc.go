// Package status writes the status of every resource from the tables of the other rooms, once these
// have decided. It is the last room: no other reads it.
package status

// Package share divides a bound among users, so that none of them takes all: of the slots of a Bound, each user may have a part.
//
// It does not know what the slots are for. Nothing is kept of a user who has no slot and waits for none.
package share

// Package quota divides a bound among namespaces. Each claim is of one namespace, and has an age. Claims are granted in rounds: one of
// each namespace in a round, its oldest first, until as many as the bound are granted or no namespace has another. So no namespace keeps
// others out by many claims, and a claim that is not granted is granted as soon as there is room.
//
// Who is granted follows from the claims alone. While all are granted, a claim that comes or goes concerns no other one.
//
// Files in reading order: quota.go (the tables), level.go (how many rounds there are), route.go (the routes that ask for series).
package quota

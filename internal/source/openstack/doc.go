// Package openstack is the source of an OpenStack cloud: it reads the load balancers of
// Octavia, or of Neutron's LBaaS v2, and gives a cloud.Sink a service for each of them, and
// one for each pool to which only L7 policies lead.
//
// It reads everything at the start, polls the load balancers that changed last, sweeps over
// all IDs to find deleted ones, and listens to notifications where the cloud has a message
// broker. It changes nothing in the cloud. It maps no names, and decides neither which
// services are in effect nor what a loss means.
//
// Invariants: a service is given whole, from reads of one load balancer between which it did
// not change. A list is given to Replace only if every page of it was read. Run retries for
// ever, and one load balancer that cannot be read delays no other.
//
// Files in reading order: source.go (configuration and parts), sweep.go (lists of everything), poll.go (what
// changed last), notification.go (the message broker), read.go (one load balancer), view.go (what the credentials
// may list, and which projects count), state.go (what is known and given), convert.go (load balancers become
// services), queue.go (what is to be read), request.go (requests and lists), page.go (answers,
// read within bounds), session.go (tokens), resource.go (the API's objects), error.go, credentials.go (clouds.yaml).
// Each calls only functions of later ones.
package openstack

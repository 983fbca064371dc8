// Package lbtest is the contract of data planes: one suite that every driver passes, and a
// fake that passes it too.
//
// Its first part checks the driver's answers and the kernel's state. Setting the same again changes
// nothing; a change touches only its differences; a refused frontend has a reason and affects no other; a
// new process finds the state of an earlier one; and objects of others stay untouched.
// The second part sends traffic: a client, a load balancer and backends in network
// namespaces of their own, with TCP, UDP and HTTP over IPv4 and IPv6.
//
// The data plane under test runs in its own process inside the load balancer's
// namespace (this test binary again), so that it can be killed. Its missing features are
// listed, with a part of the required reason.
package lbtest

import (
	"context"

	"fairlead.dev/internal/model"
)

// DataPlane is a data plane as the agent uses it (internal/agent declares it), with the
// queries of users and its end.
type DataPlane interface {
	Run(ctx context.Context) error
	Set(b model.Balancing) error
	Observed() []model.FrontendObserved
	Supports(f *model.Balanced) error
	Figures() ([]model.FrontendFigures, map[string]uint64, error)
	Flows(q model.FlowQuery) (flows []model.Flow, truncated bool, err error)
	// Close ends the balancing; with leave it only ends the process's part in it.
	Close(leave bool) error
}

// Subject is a data plane under test.
type Subject struct {
	Kind model.DataPlaneKind
	// New makes a data plane that finds the state of an earlier one.
	New func() (DataPlane, error)
	// Dump is the kernel's state as text, ours and others', without counters.
	Dump func() (string, error)
	// Meddle adds an object of another program to the kernel that the data plane could
	// mistake for its own.
	Meddle func() error
	// Damage removes an object of the data plane.
	Damage func() error
	// Watches says that Run may have repaired it before anybody can look.
	Watches bool
	// Repair makes Run look at once.
	Repair func(DataPlane) error
	// Cannot are the features that it refuses, with a part of the reason.
	Cannot map[Feature]string
	// Mode that traffic goes through; empty is chosen by the data plane.
	Mode model.ForwardMode
	// Direct says that backends answer the client past the load balancer.
	Direct bool
	// Prepare makes a backend's namespace ready for the mode; it runs inside.
	Prepare func() error
	// Policy changes every frontend of the traffic cases, if set.
	Policy func(*model.Frontend)
	// Settings are made in the load balancer's namespace (below /proc/sys).
	Settings map[string]string
	// StateDir is the environment variable by which New gets a directory that outlasts the
	// data plane's processes of a case. What they mount there goes with the case.
	StateDir string
	// InProcess is for a data plane without a kernel: state cases only.
	InProcess bool
}

// Feature of a frontend that some data planes lack.
type Feature string

// The features.
const (
	Sources   Feature = "source ranges"
	NewFlows  Feature = "new-flow limit"
	Scheduler Feature = "scheduler wlc"
	MaxFlows  Feature = "flows to one backend"
	Affinity  Feature = "affinity"
	// AffinityPorts: a client's flows to all ports of a VIP and owner have one backend.
	AffinityPorts Feature = "affinity over ports"
	QUIC          Feature = "QUIC"
	NAT           Feature = "mode NAT"
	DSRGeneve     Feature = "mode DSRGeneve"
	DSRIPIP       Feature = "mode DSRIPIP"
	DSRL2         Feature = "mode DSRL2"
	OtherPort     Feature = "backends at other ports"
	Watch         Feature = "events of flows"
	// AnyRoute: answers return through the load balancer, independent of the backends'
	// routes.
	AnyRoute Feature = "backends with another route to the client"
	// StickyDrain: a client with affinity leaves a draining backend.
	StickyDrain Feature = "affinity that ends with draining"
	Listener    Feature = "listeners of proxies"
)

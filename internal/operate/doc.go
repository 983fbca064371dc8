// Package operate carries out the orders of operators: it drains machines and backends,
// freezes routing and rolls it back to a revision.
//
// An order is a change of a resource in the API. The plane carries out the consequences;
// package operate asks the plane for its progress. It prints nothing, and it refuses
// to take silence of the plane for success.
package operate

import (
	"context"

	v1 "fairlead.dev/internal/console/v1"
)

// Plane answers what the plane that leads knows.
type Plane interface {
	// Backends are those of a frontend, a VIP or an owner; of all frontends for an empty text.
	Backends(ctx context.Context, of string) ([]v1.BackendStatus, error)
	// LeaderStatus is the status of the plane that leads.
	LeaderStatus(ctx context.Context) (v1.Status, error)
}

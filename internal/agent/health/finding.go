package health

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
)

// Finding is this machine's own result of a check.
type Finding struct {
	Health model.Health
	First  bool // as in model.CheckResult
	Alone  bool // there is no plane
}

// sure says that it stands beside what a plane knew.
func (f Finding) sure() bool { return Decided(f.Health) && !f.First }

// Holds reports whether the finding outweighs the plane's health.
func (f Finding) Holds() bool { return f.sure() && f.Alone }

// Decided says that a health is known.
func Decided(h model.Health) bool { return h == model.Healthy || h == model.Unhealthy }

// read is unmarshalling, with the resource's name in the error.
func read(r *delta.Resource, m proto.Message) error {
	if err := r.Body.UnmarshalTo(m); err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	return nil
}

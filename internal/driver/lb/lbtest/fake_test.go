package lbtest

import (
	"testing"

	"fairlead.dev/internal/model"
)

func TestFake(t *testing.T) { Run(t, FakeSubject(model.DataPlaneXDP)) }

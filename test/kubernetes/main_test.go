package kubernetes

import (
	"os"
	"testing"

	"fairlead.dev/lab"
)

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	os.Exit(m.Run())
}

package xdp

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
)

func TestProgLoads(t *testing.T) {
	needsRoot(t)
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	c, err := ebpf.NewCollection(spec)
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		t.Fatalf("%+v", refused)
	} else if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

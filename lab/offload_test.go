package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestWiresTreatPacketsAsCablesDo(t *testing.T) {
	l := up(t, routed("plain"))
	check := func(namespace string, names ...string) {
		t.Helper()
		ns, err := openNamespace(namespace)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Close(ns) }()
		if err := inNamespace(ns, func() error {
			fd, err := offloadSocket()
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			for _, name := range names {
				for command, want := range map[uint32]uint32{transmitChecksum: 0, mergeSegments: 1} {
					if got, err := askOffload(fd, name, command, 0); err != nil || got != want {
						t.Errorf("%s: ethtool command %#x says %d (%v), want %d", name, command, got, err, want)
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	s := l.State()
	for _, m := range s.Machines {
		for wire := range m.Wires {
			check(m.Namespace, m.device(wire))
			check(s.Fabric, m.port(wire))
		}
	}
}

package confine

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestCalls runs the filter over what processes ask for.
func TestCalls(t *testing.T) {
	if architecture == 0 {
		t.Skip("there is no filter for this architecture")
	}
	const own = 4711
	vm, err := bpf.NewVM(calls(refused, own))
	if err != nil {
		t.Fatal(err)
	}
	const threads = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	for _, x := range []struct {
		what             string
		machine, number  uint32
		argument, result uint32
	}{
		{"read", architecture, unix.SYS_READ, 0, allow},
		{"execve", architecture, unix.SYS_EXECVE, 0, allow},
		{"bind", architecture, unix.SYS_BIND, 0, allow},
		{"a signal to itself", architecture, unix.SYS_TGKILL, own, allow},
		{"a signal to another process", architecture, unix.SYS_TGKILL, 1, refuse},
		{"a thread", architecture, unix.SYS_CLONE, threads, allow},
		{"a process", architecture, unix.SYS_CLONE, uint32(unix.SIGCHLD), refuse},
		{"a process in a namespace", architecture, unix.SYS_CLONE, unix.CLONE_NEWUSER | uint32(unix.SIGCHLD), refuse},
		{"clone3", architecture, unix.SYS_CLONE3, 0, absent},
		{"another architecture", architecture + 1, unix.SYS_READ, 0, refuse},
		{"another ABI", architecture, x32 | unix.SYS_READ, 0, refuse},
	} {
		if got := run(t, vm, x.machine, x.number, x.argument); got != x.result {
			t.Errorf("%s: %#x, want %#x", x.what, got, x.result)
		}
	}
	for _, number := range append(append([]uint32{}, refused...), refusedHere...) {
		if got := run(t, vm, architecture, number, 0); got != refuse {
			t.Errorf("system call %d: %#x, want %#x", number, got, uint32(refuse))
		}
	}
}

// run is what the filter returns for a struct seccomp_data. The machine of package bpf reads
// numbers of the network's byte order.
func run(t *testing.T, vm *bpf.VM, machine, number, argument uint32) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[atNumber:], number)
	binary.BigEndian.PutUint32(data[atArchitecture:], machine)
	binary.BigEndian.PutUint32(data[atArgument:], argument)
	got, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

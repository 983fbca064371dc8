package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// refused are the system calls that a server has no use for and whoever takes one over would
// have: to look into other processes and to end them, to change what is mounted, to load code into
// the kernel, to get at keys, and interfaces in which the kernel's faults were found.
var refused = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_MOUNT_SETATTR, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_SETNS, unix.SYS_UNSHARE,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_SYSLOG, unix.SYS_PERSONALITY,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_CLOCK_SETTIME,
}

// Offsets in struct seccomp_data (seccomp(2)), and what is in numbers there.
const (
	atNumber       = 0
	atArchitecture = 4
	atArgument     = 16         // the lower half of the first one, on little-endian machines
	x32            = 0x40000000 // numbers of another ABI of amd64 begin there
)

const (
	allow  = unix.SECCOMP_RET_ALLOW
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// filterCalls takes system calls from this thread, and from what it becomes, for good.
func filterCalls() error {
	program := calls(refused, uint32(os.Getpid()))
	if len(program) == 0 {
		return nil
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return fmt.Errorf("assemble the filter of system calls: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	install := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(install)))
	runtime.KeepAlive(filter)
	if errno != 0 && !errors.Is(errno, unix.ENOSYS) && !errors.Is(errno, unix.EINVAL) { // a kernel without filters
		return fmt.Errorf("restrict system calls: %w", errno)
	}
	return nil
}

// calls is the filter (seccomp(2)) that refuses these system calls, with EPERM, processes beside
// threads, and signals to others than the process of that number. It is empty on an architecture whose numbers are not known. What is decided by
// the number alone the kernel remembers: a system call that is allowed costs next to nothing.
func calls(refused []uint32, pid uint32) []bpf.Instruction {
	if architecture == 0 {
		return nil
	}
	refused = append(refused[:len(refused):len(refused)], refusedHere...)
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: atArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: architecture, SkipTrue: 1},
		bpf.RetConstant{Val: refuse},
		bpf.LoadAbsolute{Off: atNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: x32, SkipFalse: 1},
		bpf.RetConstant{Val: refuse},
	}
	for i, number := range refused {
		program = append(program, bpf.JumpIf{Cond: bpf.JumpEqual, Val: number, SkipTrue: uint8(len(refused) - i)})
	}
	return append(program,
		bpf.Jump{Skip: 1}, // it is none of them
		bpf.RetConstant{Val: refuse},
		// Its flags are in memory, where no filter looks; libraries take clone where it is absent.
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE3, SkipFalse: 1},
		bpf.RetConstant{Val: absent},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_TGKILL, SkipFalse: 3}, // abort(3) signals its own process
		bpf.LoadAbsolute{Off: atArgument, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: pid, SkipTrue: 5},
		bpf.RetConstant{Val: refuse},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_CLONE, SkipFalse: 3},
		bpf.LoadAbsolute{Off: atArgument, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: unix.CLONE_THREAD, SkipTrue: 1},
		bpf.RetConstant{Val: refuse},
		bpf.RetConstant{Val: allow},
	)
}

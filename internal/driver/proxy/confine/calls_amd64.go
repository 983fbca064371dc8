package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_X86_64

var refusedHere = []uint32{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_MODIFY_LDT, unix.SYS_KEXEC_FILE_LOAD}

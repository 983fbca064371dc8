package confine

import "golang.org/x/sys/unix"

const architecture = unix.AUDIT_ARCH_AARCH64

var refusedHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}

/*
 * User-mode Linux 6.1 keeps a guest's extended processor state in a buffer of fixed size
 * (the state with AVX-512 and protection keys). On processors with AMX the host's state is
 * larger, and ptrace refuses to set it from less than the whole. This library stands before
 * the C library's ptrace: it reads the whole state into a buffer of its own, hands on as
 * much as fits, and completes what is written from the thread's present state. The tile
 * registers are left out: no program in the guest uses them.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef NT_X86_XSTATE
#define NT_X86_XSTATE 0x202
#endif

/* Where XSTATE_BV is in the XSAVE area, and its bits of AMX (Intel SDM, volume 1, 13.4.2). */
#define XSTATE_BV_AT 512
#define XSTATE_AMX (3ULL << 17)

static _Thread_local unsigned char whole[1 << 16];

static long get_whole(pid_t thread, size_t *length)
{
	struct iovec v = { whole, sizeof(whole) };
	long r = syscall(SYS_ptrace, PTRACE_GETREGSET, thread, NT_X86_XSTATE, &v);

	*length = v.iov_len;
	return r;
}

static long get_state(pid_t thread, struct iovec *to)
{
	size_t length;

	if (get_whole(thread, &length) < 0)
		return -1;
	if (to->iov_len > length)
		to->iov_len = length;
	memcpy(to->iov_base, whole, to->iov_len);
	return 0;
}

static long set_state(pid_t thread, const struct iovec *from)
{
	size_t length, n;
	uint64_t present;

	if (get_whole(thread, &length) < 0)
		return -1;
	n = from->iov_len < length ? from->iov_len : length;
	memcpy(whole, from->iov_base, n);
	if (length >= XSTATE_BV_AT + sizeof(present)) {
		memcpy(&present, whole + XSTATE_BV_AT, sizeof(present));
		present &= ~XSTATE_AMX;
		memcpy(whole + XSTATE_BV_AT, &present, sizeof(present));
	}
	struct iovec v = { whole, length };

	return syscall(SYS_ptrace, PTRACE_SETREGSET, thread, NT_X86_XSTATE, &v);
}

long ptrace(enum __ptrace_request request, ...)
{
	va_list list;
	long word = 0;

	va_start(list, request);
	pid_t thread = va_arg(list, pid_t);
	void *addr = va_arg(list, void *);
	void *data = va_arg(list, void *);
	va_end(list);

	switch (request) {
	case PTRACE_GETREGSET:
		if ((uintptr_t)addr == NT_X86_XSTATE)
			return get_state(thread, data);
		break;
	case PTRACE_SETREGSET:
		if ((uintptr_t)addr == NT_X86_XSTATE)
			return set_state(thread, data);
		break;
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
	case PTRACE_PEEKUSER:
		/* The system call stores the word, the library's function returns it. */
		if (syscall(SYS_ptrace, request, thread, addr, &word) < 0)
			return -1;
		errno = 0;
		return word;
	default:
		break;
	}
	return syscall(SYS_ptrace, request, thread, addr, data);
}

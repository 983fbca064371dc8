package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
)

// softirqs knows whose work the kernel does in softirqs, which it charges to whoever runs
// on that processor. A poll of an interface is the work of the machine that has it: XDP
// programs, forwarding, filters, the receiving half of TCP, and sending what comes of it. And a
// process is not to pay for softirqs that came while it ran.
//
// Programs at tracepoints read the clock when softirqs begin and end and after each poll.
type softirqs struct {
	polls *ebpf.Map // by the inode of a network namespace
	tasks *ebpf.Map // by process
	close []func() error
}

// polled is what polls have done for a machine; the kernel's programs know its layout.
type polled struct{ Nanoseconds, Packets, Polls uint64 }

// Offsets in the value of a processor's clocks.
const (
	clockMark  = 0 // when the last poll ended, or the softirq began
	clockEntry = 8 // when the softirq began
)

// watchSoftirqs counts for machines and processes until it is closed.
func watchSoftirqs(machines []*lab.Machine, processes []int) (s *softirqs, err error) {
	s = &softirqs{}
	defer func() {
		if err != nil {
			s.stop()
			err = fmt.Errorf("watch softirqs: %w", err)
		}
	}()
	table := func(kind ebpf.MapType, value uint32, entries int) (m *ebpf.Map) {
		if err == nil {
			if m, err = ebpf.NewMap(&ebpf.MapSpec{Type: kind, KeySize: 4, ValueSize: value, MaxEntries: uint32(entries)}); err == nil {
				s.close = append(s.close, m.Close)
			}
		}
		return m
	}
	clocks := table(ebpf.PerCPUArray, 16, 1)
	s.polls = table(ebpf.Hash, 24, len(machines))
	s.tasks = table(ebpf.Hash, 8, len(processes))
	if err != nil {
		return s, err
	}
	for _, m := range machines {
		inode, err := namespaceOf(m)
		if err != nil {
			return s, err
		}
		if err := s.polls.Put(inode, polled{}); err != nil {
			return s, err
		}
	}
	for _, id := range processes {
		if err := s.tasks.Put(uint32(id), uint64(0)); err != nil {
			return s, err
		}
	}
	at, err := findFields()
	if err != nil {
		return s, err
	}
	for _, p := range []struct {
		point string
		code  asm.Instructions
	}{
		{"napi_poll", afterPoll(at, clocks, s.polls)},
		{"softirq_exit", afterSoftirq(clocks, s.tasks)},
		{"softirq_entry", beforeSoftirq(clocks)},
	} {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, Instructions: p.code, License: "GPL"})
		if err != nil {
			return s, fmt.Errorf("load what reads the clock at %s: %w", p.point, err)
		}
		s.close = append(s.close, program.Close)
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.point, Program: program})
		if err != nil {
			return s, err
		}
		s.close = append(s.close, l.Close)
	}
	return s, nil
}

func (s *softirqs) stop() {
	for _, f := range slices.Backward(s.close) {
		_ = f()
	}
}

// namespaceOf is the number of a machine's network namespace.
func namespaceOf(m *lab.Machine) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat(m.Namespace(), &st); err != nil {
		return 0, fmt.Errorf("find the namespace of %s: %w", m.Name(), err)
	}
	return uint32(st.Ino), nil
}

// fields say where this kernel keeps what leads from a poll to its namespace's number.
type fields struct{ device, network, number int16 }

func findFields() (f fields, err error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return f, err
	}
	for _, want := range []struct {
		in, name string
		to       *int16
	}{
		{"napi_struct", "dev", &f.device}, {"net_device", "nd_net", &f.network}, {"net", "ns", &f.number}, {"ns_common", "inum", &f.number},
	} {
		var s *btf.Struct
		if err := kernel.TypeByName(want.in, &s); err != nil {
			return f, err
		}
		i := slices.IndexFunc(s.Members, func(m btf.Member) bool { return m.Name == want.name })
		if i < 0 {
			return f, fmt.Errorf("this kernel's struct %s has no %s", want.in, want.name)
		}
		*want.to += int16(s.Members[i].Offset.Bytes())
	}
	return f, nil
}

// Where the programs keep things on their stack.
const (
	stackKey   = -8
	stackValue = -16
)

// clock leaves the clocks of this processor in r9, or ends the program. It needs no
// registers but r0 to r5.
func clock(clocks *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.StoreImm(asm.RFP, stackKey, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey),
		asm.LoadMapPtr(asm.R1, clocks.FD()), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Reg(asm.R9, asm.R0),
	}
}

func end() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return()}
}

// beforeSoftirq is for softirq_entry(number).
func beforeSoftirq(clocks *ebpf.Map) asm.Instructions {
	return slices.Concat(clock(clocks), asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R9, clockMark, asm.R0, asm.DWord),
		asm.StoreMem(asm.R9, clockEntry, asm.R0, asm.DWord),
	}, end())
}

// afterSoftirq is for softirq_exit(number).
func afterSoftirq(clocks, tasks *ebpf.Map) asm.Instructions {
	return slices.Concat(clock(clocks), asm.Instructions{
		asm.LoadMem(asm.R8, asm.R9, clockEntry, asm.DWord),
		asm.JEq.Imm(asm.R8, 0, "end"), // it began before this did
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R7, asm.R0), asm.Sub.Reg(asm.R7, asm.R8),
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.StoreMem(asm.RFP, stackKey, asm.R0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey),
		asm.LoadMapPtr(asm.R1, tasks.FD()), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.AddAtomic.Mem(asm.R0, asm.R7, asm.DWord, 0),
	}, end())
}

// afterPoll is for napi_poll(napi, packets, budget).
func afterPoll(at fields, clocks, polls *ebpf.Map) asm.Instructions {
	follow := func(offset int16, size int32, to int16) asm.Instructions { // r3 is the pointer
		return asm.Instructions{
			asm.Add.Imm(asm.R3, int32(offset)),
			asm.Mov.Imm(asm.R2, size),
			asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(to)),
			asm.FnProbeReadKernel.Call(),
			asm.LoadMem(asm.R3, asm.RFP, stackValue, asm.DWord),
		}
	}
	return slices.Concat(
		asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
		clock(clocks),
		asm.Instructions{
			asm.LoadMem(asm.R8, asm.R9, clockMark, asm.DWord),
			asm.JEq.Imm(asm.R8, 0, "end"),
			asm.FnKtimeGetNs.Call(),
			asm.Mov.Reg(asm.R7, asm.R0), asm.Sub.Reg(asm.R7, asm.R8),
			asm.LoadMem(asm.R8, asm.R6, 8, asm.DWord), // packets
			asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
		},
		follow(at.device, 8, stackValue),
		asm.Instructions{asm.JEq.Imm(asm.R3, 0, "after")}, // the backlog of a processor has no device
		follow(at.network, 8, stackValue),
		follow(at.number, 4, stackKey),
		asm.Instructions{
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackKey),
			asm.LoadMapPtr(asm.R1, polls.FD()), asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "after"),
			asm.AddAtomic.Mem(asm.R0, asm.R7, asm.DWord, 0),
			asm.AddAtomic.Mem(asm.R0, asm.R8, asm.DWord, 8),
			asm.Mov.Imm(asm.R1, 1),
			asm.AddAtomic.Mem(asm.R0, asm.R1, asm.DWord, 16),
			// What this program takes is nobody's.
			asm.FnKtimeGetNs.Call().WithSymbol("after"),
			asm.StoreMem(asm.R9, clockMark, asm.R0, asm.DWord),
		}, end())
}

// meter knows who works for one machine.
type meter struct {
	machine   *lab.Machine
	processes []int
}

// usage is what a machine has taken so far.
type usage struct {
	kernel, processes time.Duration
	packets           uint64 // that were polled
}

func (u usage) since(before usage) usage {
	return usage{u.kernel - before.kernel, u.processes - before.processes, u.packets - before.packets}
}

func (m meter) read(s *softirqs) (u usage, err error) {
	inode, err := namespaceOf(m.machine)
	if err != nil {
		return u, err
	}
	var p polled
	if err := s.polls.Lookup(inode, &p); err != nil {
		return u, fmt.Errorf("read what the kernel did for %s: %w", m.machine.Name(), err)
	}
	u.kernel, u.packets = time.Duration(p.Nanoseconds), p.Packets
	for _, id := range m.processes {
		own, err := s.ran(id)
		if err != nil {
			return u, fmt.Errorf("processes of %s: %w", m.machine.Name(), err)
		}
		u.processes += own
	}
	return u, nil
}

// ran is how long a process has run: all its threads, also those that have ended, in
// user space and in the kernel, without softirqs.
func (s *softirqs) ran(id int) (time.Duration, error) {
	others, err := s.during(id)
	if err != nil {
		return 0, err
	}
	// The clock of a process, as clock_getcpuclockid(3) makes it.
	const scheduled = 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^id<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("read the clock of process %d: %w", id, err)
	}
	return time.Duration(t.Nano()) - others, nil
}

// during is how long softirqs have run in the place of a process.
func (s *softirqs) during(id int) (time.Duration, error) {
	var ns uint64
	if err := s.tasks.Lookup(uint32(id), &ns); err != nil {
		return 0, fmt.Errorf("read the softirqs of process %d: %w", id, err)
	}
	return time.Duration(ns), nil
}

// busy is how long the host's processors have worked, in all, since some moment: they have
// when they were not idle. Idle time is exact; all others in /proc/stat are samples, which what
// a timer wakes may escape.
func busy() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait ...
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	all := time.Duration(now.Nano()) * time.Duration(strings.Count(string(text), "\ncpu"))
	for _, f := range fields[4:6] {
		ticks, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc/stat: %w", err)
		}
		all -= time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 everywhere that matters
	}
	return all, nil
}

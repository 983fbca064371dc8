package xdp

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"fairlead.dev/internal/model"
)

// What is said of an interface that another program has is the command that makes room,
// whichever way that program is attached.
func TestAnotherProgramsPlaceIsMadeFree(t *testing.T) {
	for name, c := range map[string]struct {
		flags  link.XDPAttachFlags // by a link
		legacy int                 // by netlink
		says   string
	}{
		"a link":           {flags: link.XDPDriverMode, says: "`bpftool link detach id "},
		"a generic link":   {flags: link.XDPGenericMode, says: "`bpftool link detach id "},
		"netlink":          {legacy: nl.XDP_FLAGS_DRV_MODE, says: "`ip link set dev eth0 xdpdrv off`"},
		"netlink, generic": {legacy: nl.XDP_FLAGS_SKB_MODE, says: "`ip link set dev eth0 xdpgeneric off`"},
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t)
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}})
			must(t, err)
			t.Cleanup(func() { _ = p.Close() })
			dev, err := netlink.LinkByName("eth0")
			must(t, err)
			if c.legacy == 0 {
				l, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: dev.Attrs().Index, Flags: c.flags})
				must(t, err)
				t.Cleanup(func() { _ = l.Close() })
			} else {
				must(t, netlink.LinkSetXdpFdWithFlags(dev, p.FD(), c.legacy))
			}
			d := newPlane(t, pinsIn(t))
			t.Cleanup(func() { must(t, d.Close(false)) })
			must(t, d.Set(one(t, nil)))
			said := d.Observed()[0].Message
			if !strings.Contains(said, "another program is attached there (program ") || !strings.Contains(said, ", foreign)") || !strings.Contains(said, c.says) {
				t.Fatalf("it says %q, want %s", said, c.says)
			}
			makeRoom(t, said)
			must(t, d.Set(one(t, nil)))
			if o := d.Observed()[0]; o.State != model.FrontendBalanced {
				t.Errorf("after that it is %s: %s", o.State, o.Message)
			}
		})
	}
}

// makeRoom does what a message says: by the command, or, where there is no bpftool, by what
// that asks of the kernel.
func makeRoom(t *testing.T, said string) {
	t.Helper()
	command := strings.Fields(regexp.MustCompile("`([^`]*)`").FindStringSubmatch(said)[1])
	if _, err := exec.LookPath(command[0]); err == nil {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
		return
	}
	if command[0] != "bpftool" {
		t.Fatalf("there is no %s", command[0])
	}
	id, err := strconv.ParseUint(command[len(command)-1], 10, 32)
	must(t, err)
	l, err := link.NewFromID(link.ID(id))
	must(t, err)
	must(t, l.Detach())
	must(t, l.Close())
}

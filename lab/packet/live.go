package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Live is what one thread sends of live frames over a veth pair: it makes packets, has
// the load balancer encapsulate and send them, and the other end counts them.
type Live struct {
	// Mpps are millions of packets a second, making them included.
	Mpps float64 `json:"mpps"`
	// Arrived is the share of the packets that came to the other end.
	Arrived float64 `json:"arrived"`
	Packets int     `json:"packets"`
}

// live frames that are under way at once, and bytes before a frame that the kernel keeps
// for headers.
const liveBatch = 64

// Live sends so many live frames of a case.
func (b *Bench) Live(c Case, packets int) (l Live, err error) {
	if err := b.aim(c); err != nil {
		return l, err
	}
	done := make(chan error)
	go func() {
		// The thread ends with the goroutine, and the namespace and its links with it.
		runtime.LockOSThread()
		done <- func() error {
			l, err = b.live(c, packets)
			return err
		}()
	}()
	return l, <-done
}

func (b *Bench) live(c Case, packets int) (l Live, err error) {
	space, err := netns.New()
	if err != nil {
		return l, fmt.Errorf("make a network namespace: %w", err)
	}
	defer func() { err = errors.Join(err, space.Close()) }()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", MTU: mtu}, PeerName: "far"}
	if err := netlink.LinkAdd(veth); err != nil {
		return l, fmt.Errorf("make a veth pair: %w", err)
	}
	var ends [2]netlink.Link
	for i, name := range []string{"near", "far"} {
		if ends[i], err = netlink.LinkByName(name); err != nil {
			return l, err
		}
		if err := netlink.LinkSetUp(ends[i]); err != nil {
			return l, fmt.Errorf("set %s up: %w", name, err)
		}
	}
	for i, program := range []*ebpf.Program{b.objects.Balance, b.objects.Sink} {
		at, err := link.AttachXDP(link.XDPOptions{Program: program, Interface: ends[i].Attrs().Index, Flags: link.XDPDriverMode})
		if err != nil {
			return l, fmt.Errorf("attach to a veth: %w", err)
		}
		defer func() { _ = at.Close() }()
	}
	var next benchNextHop
	if err := b.objects.NextHops.Lookup(uint32(1), &next); err != nil {
		return l, err
	}
	was := next
	next.Device = uint32(ends[0].Attrs().Index)
	if err := b.objects.NextHops.Put(uint32(1), next); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, b.objects.NextHops.Put(uint32(1), was)) }()
	course := benchCourse{Flows: c.Flows, Vips: c.VIPs, Version: 4, Protocol: 6, TcpFlags: 0x10}
	if err := b.objects.Courses.Put(uint32(0), course); err != nil {
		return l, err
	}
	before, err := b.arrived()
	if err != nil {
		return l, err
	}
	frame := make([]byte, size)
	context := make([]byte, 24) // struct xdp_md
	binary.NativeEndian.PutUint32(context[4:], uint32(len(frame)))
	binary.NativeEndian.PutUint32(context[12:], next.Device)
	began := time.Now()
	if _, err := b.objects.Live.Run(&ebpf.RunOptions{
		Data: frame, Context: context, Repeat: uint32(packets), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: liveBatch,
	}); err != nil {
		return l, fmt.Errorf("send live frames: %w", err)
	}
	took := time.Since(began)
	time.Sleep(100 * time.Millisecond) // what is under way
	after, err := b.arrived()
	if err != nil {
		return l, err
	}
	return Live{Mpps: float64(packets) / took.Seconds() / 1e6, Arrived: float64(after-before) / float64(packets), Packets: packets}, nil
}

func (b *Bench) arrived() (n uint64, err error) {
	var each []uint64
	if err := b.objects.Arrivals.Lookup(uint32(0), &each); err != nil {
		return 0, err
	}
	for _, k := range each {
		n += k
	}
	return n, nil
}

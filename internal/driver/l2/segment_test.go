package l2

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// What this test binary is when it is started again inside a machine.
const (
	asMember  = "FAIRLEAD_L2_TEST_MEMBER"  // an agent that announces; the value is a memberSpec
	asSniffer = "FAIRLEAD_L2_TEST_SNIFFER" // writes down what arrives at eth0
)

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	switch {
	case os.Getenv(asMember) != "":
		runMember(os.Getenv(asMember))
	case os.Getenv(asSniffer) != "":
		runSniffer()
	default:
		os.Exit(m.Run())
	}
}

// memberSpec says for which VIPs a member is a candidate. SIGUSR1 makes it not ready and SIGUSR2 ready;
// SIGTERM stops it, and SIGINT stops it for a restart.
type memberSpec struct {
	Machine    string
	VIPs       []netip.Addr
	Candidates []string // for each VIP rotated by its index when Spread
	Spread     bool
	Status     string // file that gets a line of JSON whenever the status changes
}

type memberStatus struct {
	At   time.Time
	VIPs []model.VIPObserved
}

func runMember(value string) {
	var spec memberSpec
	fatal(json.Unmarshal([]byte(value), &spec))
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	status, err := os.OpenFile(spec.Status, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	fatal(err)
	leave := false
	var a *Announcer
	a = New(Config{
		Machine: spec.Machine, Hold: testHold, Release: testRelease, Log: log,
		Leave: func() bool { return leave },
		Changed: func() {
			line, err := json.Marshal(memberStatus{time.Now(), a.Status()})
			fatal(err)
			_, err = status.Write(append(line, '\n'))
			fatal(err)
		},
	})
	set := func(ready bool) {
		var candidacies []Candidacy
		for i, v := range spec.VIPs {
			candidates := slices.Clone(spec.Candidates)
			if spec.Spread {
				n := i % len(candidates)
				candidates = append(candidates[n:], candidates[:n]...)
			}
			candidacies = append(candidacies, Candidacy{VIP: v, Candidates: candidates, Ready: ready})
		}
		a.Set(candidacies)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM, unix.SIGINT)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for s := range signals {
			switch s {
			case unix.SIGUSR1, unix.SIGUSR2:
				set(s == unix.SIGUSR2)
			default:
				leave = s == unix.SIGINT
				cancel()
			}
		}
	}()
	set(true)
	fatal(a.Run(ctx))
	os.Exit(0)
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// testHold stands in for package address: on lo, and silent.
func testHold(a netip.Addr) error {
	for _, dev := range []string{"default", "eth0"} {
		for name, v := range map[string]string{"arp_ignore": "3", "arp_announce": "2"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+dev+"/"+name, []byte(v), 0); err != nil {
				return err
			}
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.AddrReplace(lo, testAddr(a))
}

func testRelease(a netip.Addr) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.AddrDel(lo, testAddr(a)); err != nil && err != unix.EADDRNOTAVAIL { //nolint:errorlint // netlink returns the number itself
		return err
	}
	return nil
}

func testAddr(a netip.Addr) *netlink.Addr {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
	if a.Is4() {
		addr.Scope = unix.RT_SCOPE_HOST
	} else {
		addr.Flags = unix.IFA_F_NODAD
	}
	return addr
}

// heard is a frame as the sniffer wrote it down.
type heard struct {
	Kind   string // "announcement", "answer", "question", "heartbeat"
	VIP    netip.Addr
	MAC    string // whom the frame says has the VIP, or who asks in the VIP's name
	Source string // of the frame
}

// runSniffer writes a line of JSON for every frame of ours that arrives at eth0.
func runSniffer() {
	eth0, err := net.InterfaceByName("eth0")
	fatal(err)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	fatal(err)
	fatal(unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0x0300, Ifindex: eth0.Index})) // ETH_P_ALL
	mreq := unix.PacketMreq{Ifindex: int32(eth0.Index), Type: unix.PACKET_MR_PROMISC}
	fatal(unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &mreq))
	out := json.NewEncoder(os.Stdout)
	fatal(out.Encode(heard{Kind: "ready"}))
	b := make([]byte, 9216)
	for {
		n, err := unix.Read(fd, b)
		fatal(err)
		if n < headerSize {
			continue
		}
		f := heard{Source: hardware(b[6:12]).String()}
		if p, err := parseARP(b[:n]); err == nil {
			f.Kind, f.VIP, f.MAC = "question", p.target, p.senderMAC.String()
			switch {
			case p.sender == p.target:
				f.Kind = "announcement"
			case p.op == arpReply:
				f.Kind, f.VIP = "answer", p.sender
			case !p.sender.IsUnspecified():
				fatal(out.Encode(heard{Kind: "asker", VIP: p.sender, MAC: p.senderMAC.String(), Source: f.Source}))
			}
		} else if _, _, err := parseBeat(b[:n]); err == nil {
			f.Kind = "heartbeat"
		} else if n > headerSize+ipv6Size && b[12] == 0x86 && b[13] == 0xdd && b[20] == 58 {
			from, to := netip.AddrFrom16([16]byte(b[22:38])), netip.AddrFrom16([16]byte(b[38:54]))
			q, err := parseNeighbour(b[headerSize+ipv6Size:n], from, to)
			if err != nil {
				continue
			}
			f.VIP, f.MAC = q.target, q.mac.String()
			switch {
			case q.kind == solicitation:
				f.Kind = "question"
			case q.flags&flagSolicited != 0:
				f.Kind = "answer"
			default:
				f.Kind = "announcement"
			}
		} else {
			continue
		}
		fatal(out.Encode(f))
	}
}

// rig is a lab with a client and machines that serve the VIPs, each of which says its
// name to whoever connects, whether its agent lives or not.
type rig struct {
	t       testing.TB
	lab     *lab.Lab
	names   []string
	vips    []netip.Addr
	spread  bool
	members map[string]*lab.Process
	starts  int
}

const (
	patienceOfTests = 60 * time.Second
	service         = "80"
)

func vips(n int) []netip.Addr {
	var v []netip.Addr
	for i := range n {
		if i%2 == 0 {
			v = append(v, netip.AddrFrom4([4]byte{10, 77, byte(200 + i/2/250), byte(1 + i/2%250)}))
		} else {
			v = append(v, netip.MustParseAddr(fmt.Sprintf("fd77::c8:%x", i)))
		}
	}
	return v
}

func newRig(t testing.TB, count int, names ...string) *rig {
	t.Helper()
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	topology := lab.Topology{Name: "l2", Machines: []lab.MachineSpec{{Name: "client", Role: lab.RoleClient}}}
	for _, n := range names {
		topology.Machines = append(topology.Machines, lab.MachineSpec{Name: n, Role: lab.RoleEdge})
	}
	l, err := lab.Up(t.Context(), topology, lab.Options{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(l.State().Fabric)), "logs", "*"))
			for _, f := range logs {
				if b, err := os.ReadFile(f); err == nil && !strings.Contains(f, "sniffer") {
					t.Logf("%s:\n%s", filepath.Base(f), b)
				}
			}
		}
		must(t, l.Down(context.Background()))
	})
	r := &rig{t: t, lab: l, names: names, vips: vips(count), members: map[string]*lab.Process{}}
	for _, n := range names {
		r.serve(n)
	}
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serve is the machine's proxy.
func (r *rig) serve(name string) {
	l, err := r.lab.Machine(name).Listen(r.t.Context(), "tcp", ":"+service)
	must(r.t, err)
	r.t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
}

// start starts members' agents.
func (r *rig) start(names ...string) {
	r.t.Helper()
	for _, n := range names {
		dir, err := r.lab.Machine(n).Dir("member")
		must(r.t, err)
		r.starts++
		spec, err := json.Marshal(memberSpec{
			Machine: n, VIPs: r.vips, Candidates: r.names, Spread: r.spread, Status: filepath.Join(dir, "status"),
		})
		must(r.t, err)
		r.members[n], err = r.lab.Machine(n).Start(r.t.Context(), lab.ProcessSpec{
			Name: "member", Argv: []string{os.Args[0]}, Env: []string{asMember + "=" + string(spec)},
		})
		must(r.t, err)
	}
}

// history is what a member's status was, oldest first.
func (r *rig) history(name string) []memberStatus {
	dir, err := r.lab.Machine(name).Dir("member")
	must(r.t, err)
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil
	}
	var all []memberStatus
	for line := range bytes.Lines(b) {
		var s memberStatus
		if json.Unmarshal(line, &s) == nil { // else it is being written
			all = append(all, s)
		}
	}
	return all
}

// status is what a member said last about a VIP.
func (r *rig) status(name string, vip netip.Addr) model.VIPObserved {
	all := r.history(name)
	if len(all) == 0 {
		return model.VIPObserved{}
	}
	for _, v := range all[len(all)-1].VIPs {
		if v.Address == vip {
			return v
		}
	}
	return model.VIPObserved{}
}

// owners are the members of those named that say they announce the VIP.
func (r *rig) owners(vip netip.Addr, names ...string) string {
	var who []string
	for _, n := range names {
		if r.status(n, vip).State == model.VIPAnnounced {
			who = append(who, n)
		}
	}
	return strings.Join(who, " ")
}

// ask returns who answers the client at a VIP, or "".
func (r *rig) ask(vip netip.Addr) string {
	ctx, cancel := context.WithTimeout(r.t.Context(), 150*time.Millisecond)
	defer cancel()
	c, err := r.lab.Machine("client").Dial(ctx, "tcp", net.JoinHostPort(vip.String(), service))
	if err != nil {
		return ""
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	b, err := io.ReadAll(c)
	if err != nil {
		return ""
	}
	return string(b)
}

// eventually polls until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patienceOfTests); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %v: %s", patienceOfTests, what)
		}
	}
}

// settled waits until the client reaches every VIP at name and name's is the only
// member that says so.
func (r *rig) settled(name string, among ...string) {
	r.t.Helper()
	for _, v := range r.vips {
		r.eventually(fmt.Sprintf("%s is at %s alone", v, name), func() bool {
			return r.ask(v) == name && r.owners(v, among...) == name
		})
	}
}

// moved returns how long it took from cause until the client reached the VIP at
// another machine than from.
func (r *rig) moved(vip netip.Addr, from string, cause func()) time.Duration {
	r.t.Helper()
	start := time.Now()
	cause()
	r.eventually(fmt.Sprintf("%s is no longer at %s", vip, from), func() bool {
		who := r.ask(vip)
		return who != "" && who != from
	})
	return time.Since(start)
}

// isolate keeps machines from hearing each other; the client hears them all.
func (r *rig) isolate(on bool, names ...string) {
	r.t.Helper()
	ns, err := netns.GetFromPath(r.lab.State().Fabric)
	must(r.t, err)
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns)
	must(r.t, err)
	defer h.Close()
	for _, n := range names {
		l, err := h.LinkByName(n)
		must(r.t, err)
		must(r.t, h.LinkSetIsolated(l, on))
	}
}

// forget empties the client's neighbour caches.
func (r *rig) forget() {
	r.t.Helper()
	h, err := r.lab.Machine("client").Netlink()
	must(r.t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(r.t, err)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := h.NeighList(eth0.Attrs().Index, family)
		must(r.t, err)
		for _, n := range all {
			_ = h.NeighDel(&n)
		}
	}
}

// sniff writes down what the client's interface gets, until the function that it
// returns is called, which gives it back.
func (r *rig) sniff() (stop func() []heard) {
	r.t.Helper()
	cmd := r.lab.Machine("client").Command(r.t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), asSniffer+"=1")
	out, err := cmd.StdoutPipe()
	must(r.t, err)
	must(r.t, cmd.Start())
	var all []heard
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		r.t.Fatal("the sniffer did not start")
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines.Scan() {
			var f heard
			if json.Unmarshal(lines.Bytes(), &f) == nil {
				all = append(all, f)
			}
		}
	})
	return func() []heard {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
		return all
	}
}

func machineMAC(t testing.TB, r *rig, name string) net.HardwareAddr {
	t.Helper()
	h, err := r.lab.Machine(name).Netlink()
	must(t, err)
	defer h.Close()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	return eth0.Attrs().HardwareAddr
}

// setNeighbours tells a kernel where VIPs are.
func setNeighbours(t testing.TB, h *netlink.Handle, vips []netip.Addr, mac net.HardwareAddr) {
	t.Helper()
	eth0, err := h.LinkByName("eth0")
	must(t, err)
	for _, v := range vips {
		must(t, h.NeighSet(&netlink.Neigh{
			LinkIndex: eth0.Attrs().Index, IP: v.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
		}))
	}
}

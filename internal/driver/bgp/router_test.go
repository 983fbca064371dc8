package bgp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/lab"
	"fairlead.dev/lab/program"
)

const routerASN = 65000

// neighbour is how a router sees the machine.
type neighbour struct {
	address, local string
	asn            uint32
	link           string // of link-local addresses
	password       string
	multihop       bool
	bfd            bool
	packets        int  // of its BFD session, in a row, that the machine may miss; 0 is 3
	restart        bool // helps a graceful restart
	addPath        bool
	only4          bool
	hold           int  // seconds of its hold time; 0 is 9
	exports        int  // how many prefixes it sends to the machine
	connects       bool // opens the connection itself, too
	security       bool // sends with TTL 255 and takes nothing else (GTSM)
	role           string
	nextHop6       bool // takes IPv6 next hops for IPv4 prefixes
	port           int  // at which it waits for connections; 0 is BGP's
	unnumbered     bool // on link, where it advertises itself and finds the machine
	long           bool // its OPEN has wide lengths, and each of its routes needs more than 4,096 octets
}

// seen is a route as the router's BGP has it.
type seen struct {
	NextHop     string
	ASPath      []uint32
	Communities string
	Large       string
	MED         string
	LocalPref   string
	Stale       bool
}

// router is a real BGP implementation.
type router interface {
	// start runs it with one neighbour, until the test ends.
	start(t *testing.T, m *lab.Machine, n neighbour)
	// route returns the router's route to a prefix.
	route(t *testing.T, prefix string) (seen, bool)
	// freeze stops or continues the router's processes.
	freeze(t *testing.T, frozen bool)
	// refresh has the router ask the machine for all routes again.
	refresh(t *testing.T)
	// bfd says how the router's BFD session is, with what tells it from one before or after it.
	bfd(t *testing.T) string
	// bfdOver says whether its BGP has heard that BFD is not up. It may hear of that after the session that BFD watched
	// has ended, and ends the next one for it.
	bfdOver(t *testing.T) bool
	// bfdEndsRestart says whether it drops the routes that it keeps for a restart when BFD finds the machine gone.
	bfdEndsRestart() bool
}

// kernelRoute is what the router's kernel does with packets to an address, "" being nothing.
func kernelRoute(t *testing.T, m *lab.Machine, address string) string {
	t.Helper()
	family := "-4"
	if strings.Contains(address, ":") {
		family = "-6"
	}
	out, err := m.Command(t.Context(), "ip", family, "route", "show", address).Output()
	if err != nil {
		t.Fatalf("ip route: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// forget takes away what a router that was killed left in its kernel.
func forget(t *testing.T, m *lab.Machine) {
	t.Helper()
	const script = `for f in 4 6; do for p in bgp bird; do ip -$f route flush proto $p; done; done; ip nexthop flush`
	if out, err := m.Command(t.Context(), "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("did not happen: %s", what)
}

// daemon starts a program of a router and ends it with the test.
func daemon(t *testing.T, m *lab.Machine, argv ...string) *lab.Process {
	t.Helper()
	return daemonOf(t, m, lab.ProcessSpec{Name: filepath.Base(argv[0]), Argv: argv})
}

func daemonOf(t *testing.T, m *lab.Machine, spec lab.ProcessSpec) *lab.Process {
	t.Helper()
	p, err := m.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Signal(unix.SIGCONT)
		p.Kill9()
		if t.Failed() {
			if log, err := os.ReadFile(p.Log()); err == nil {
				t.Logf("%s:\n%s", p.Name(), log)
			}
		}
	})
	return p
}

func signal(t *testing.T, frozen bool, processes ...*lab.Process) {
	t.Helper()
	for _, p := range processes {
		s := unix.SIGCONT
		if frozen {
			s = unix.SIGSTOP
		}
		if err := p.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
}

// need fails the test when a program is missing, or only others have its name.
func need(t *testing.T, p program.Program) string {
	t.Helper()
	found, err := p.Find()
	if err != nil {
		t.Fatal(err)
	}
	return found.Path
}

type bird struct {
	m       *lab.Machine
	client  string // birdc
	socket  string
	session string // the protocol's name
	process *lab.Process
}

func (b *bird) start(t *testing.T, m *lab.Machine, n neighbour) {
	dir := t.TempDir()
	b.m, b.socket, b.session = m, filepath.Join(dir, "ctl"), "edge"
	name, address, advertises := "edge", fmt.Sprintf("%s as %d", n.address, n.asn), ""
	if n.unnumbered { // it has no such neighbours; this is how it meets one
		name, b.session, address = "edges", "edge1", fmt.Sprintf("range fe80::/10 as %d; dynamic name \"edge\"", n.asn)
		advertises = fmt.Sprintf("protocol radv { interface %q { max ra interval 4; default lifetime 0; }; }", n.link)
	}
	port := ""
	if n.port != 0 {
		port = fmt.Sprintf(" port %d", n.port)
	}
	hostname := ""
	if n.long {
		hostname = fmt.Sprintf("hostname %q;\n", strings.Repeat("router", 40))
	}
	var extra, channel strings.Builder
	line := func(to *strings.Builder, ok bool, text string) {
		if ok {
			fmt.Fprintln(to, text)
		}
	}
	line(&extra, n.password != "", fmt.Sprintf("password %q;", n.password))
	line(&extra, n.multihop, "multihop 2;")
	line(&extra, n.link != "", fmt.Sprintf("interface %q;", n.link))
	line(&extra, !n.multihop, "direct;")
	line(&extra, n.bfd, "bfd on;")
	line(&extra, !n.connects, "passive on;")
	line(&extra, n.connects, "connect delay time 1; connect retry time 1;")
	line(&extra, n.security, "ttl security on;")
	line(&extra, n.role != "", "local role "+n.role+"; require roles;")
	line(&extra, n.restart, "graceful restart on;")
	line(&extra, !n.restart, "graceful restart off;")
	line(&extra, n.long, "enable extended messages on; advertise hostname on;")
	line(&channel, n.addPath, "add paths rx;")
	line(&channel, n.nextHop6, "extended next hop on;")
	channels := ""
	for _, f := range []string{"ipv4", "ipv6"} {
		if f == "ipv6" && n.only4 {
			continue
		}
		export := "export none;"
		if f == "ipv4" && n.exports > 0 {
			export = "export where source = RTS_STATIC;"
		}
		if f == "ipv4" && n.long {
			export = "export filter { if source != RTS_STATIC then reject; " +
				strings.Join(longCommunities(1, "bgp_large_community.add((65000, 1, %d));", ""), " ") + " accept; };"
		}
		channels += fmt.Sprintf("%s { import all; %s %s };\n", f, export, channel.String())
	}
	var static strings.Builder
	for i := range n.exports {
		fmt.Fprintf(&static, "route 198.51.100.%d/32 blackhole;\n", i)
	}
	packets := cmp.Or(n.packets, 3)
	conf := fmt.Sprintf(`
log stderr all;
%srouter id %s;
protocol device { scan time 1; }
protocol direct { ipv4; ipv6; }
protocol static { ipv4; %s }
protocol kernel { ipv4 { export where source = RTS_BGP; }; }
protocol kernel { ipv6 { export where source = RTS_BGP; }; }
protocol bfd {
  interface "*" { min rx interval 300 ms; min tx interval 300 ms; multiplier %d; };
  multihop { min rx interval 300 ms; min tx interval 300 ms; multiplier %d; };
}
%s
protocol bgp %s {
  local %s%s as %d;
  neighbor %s;
  hold time %d; keepalive time 3; error wait time 1, 2; startup hold time 9;
  %s %s
}
`, hostname, m.Addr4(), static.String(), packets, packets, advertises, name, n.local, port, routerASN, address, cmp.Or(n.hold, 9), extra.String(), channels)
	file := filepath.Join(dir, "bird.conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	b.client = need(t, program.BIRDClient)
	b.process = daemon(t, m, need(t, program.BIRD), "-f", "-c", file, "-s", b.socket)
	eventually(t, "bird answers", func() bool { _, err := b.ask("show status"); return err == nil })
}

func (b *bird) ask(what string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := b.m.Command(ctx, b.client, "-s", b.socket, what).CombinedOutput()
	return string(out), err
}

func (b *bird) route(t *testing.T, prefix string) (seen, bool) {
	t.Helper()
	out, err := b.ask("show route protocol " + b.session + " all " + prefix)
	if strings.Contains(out, "Network not found") {
		return seen{}, false
	}
	if err != nil {
		t.Fatalf("birdc: %v: %s", err, out)
	}
	defer func() {
		if t.Failed() {
			t.Log(out)
		}
	}()
	var s seen
	found := false
	for l := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(l), ": ")
		switch strings.TrimPrefix(key, "BGP.") {
		case "next_hop":
			s.NextHop, found = strings.Fields(value)[0], true
		case "as_path":
			for _, as := range strings.Fields(value) {
				n, _ := strconv.ParseUint(as, 10, 32)
				s.ASPath = append(s.ASPath, uint32(n))
			}
		case "community":
			s.Communities = strings.NewReplacer("(", "", ")", "", ",", ":").Replace(strings.TrimSpace(value))
		case "large_community":
			s.Large = strings.NewReplacer("(", "", ")", "", ", ", ":").Replace(strings.TrimSpace(value))
		case "med":
			s.MED = value
		case "local_pref":
			s.LocalPref = value
		}
	}
	out, err = b.ask("show protocols all " + b.session)
	if err != nil {
		t.Fatalf("birdc: %v: %s", err, out)
	}
	s.Stale = strings.Contains(out, "Neighbor graceful restart active")
	return s, found
}

func (b *bird) refresh(t *testing.T) {
	t.Helper()
	if out, err := b.ask("reload in " + b.session); err != nil {
		t.Fatalf("birdc: %v: %s", err, out)
	}
}

func (b *bird) bfd(t *testing.T) string {
	t.Helper()
	out, err := b.ask("show bfd sessions")
	if err != nil {
		t.Fatalf("birdc: %v: %s", err, out)
	}
	for l := range strings.Lines(out) {
		// Address, interface, state, since, interval, timeout.
		if f := strings.Fields(l); len(f) == 6 && f[1] == "eth0" {
			return f[2] + " since " + f[3]
		}
	}
	return ""
}

func (b *bird) bfdOver(t *testing.T) bool {
	t.Helper()
	return !strings.HasPrefix(b.bfd(t), "Up ")
}

func (b *bird) bfdEndsRestart() bool { return true }

func (b *bird) freeze(t *testing.T, frozen bool) { signal(t, frozen, b.process) }

type frr struct {
	m         *lab.Machine
	shell     string // vtysh
	dir       string
	processes []*lab.Process
}

func (f *frr) start(t *testing.T, m *lab.Machine, n neighbour) {
	f.m, f.shell, f.dir, f.processes = m, need(t, program.Vtysh), t.TempDir(), nil
	var b strings.Builder
	line := func(ok bool, format string, args ...any) {
		if ok {
			fmt.Fprintf(&b, format+"\n", args...)
		}
	}
	line(true, "frr defaults traditional\nhostname router\nlog stdout informational")
	line(n.long, "hostname %[1]s\ndomainname %[1]s", strings.Repeat("router", 10))
	for i := range n.exports {
		line(true, "ip prefix-list OUT seq %d permit 198.51.100.%d/32", i+5, i)
	}
	line(true, "ip prefix-list OUT seq 1000 deny any\nipv6 prefix-list OUT6 deny any")
	line(true, "router bgp %d\n bgp router-id %s\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n no bgp network import-check", routerASN, m.Addr4())
	line(!n.restart, " bgp graceful-restart-disable")
	peering := map[bool]string{true: "interface ", false: ""}[n.unnumbered]
	line(true, " neighbor %s %sremote-as %d\n neighbor %s timers 3 %d", n.address, peering, n.asn, n.address, cmp.Or(n.hold, 9))
	line(!n.connects, " neighbor %s passive", n.address)
	line(n.connects, " neighbor %s timers connect 1", n.address)
	line(n.security, " neighbor %s ttl-security hops 1", n.address)
	line(n.role != "", " neighbor %s local-role %s strict-mode", n.address, n.role)
	line(n.nextHop6, " neighbor %s capability extended-nexthop", n.address)
	line(n.link != "" && !n.unnumbered, " neighbor %s interface %s", n.address, n.link)
	line(n.password != "", " neighbor %s password %s", n.address, n.password)
	line(n.multihop, " neighbor %s ebgp-multihop 2\n neighbor %s update-source %s", n.address, n.address, n.local)
	line(n.bfd, " neighbor %s bfd\n neighbor %s bfd profile fast", n.address, n.address)
	line(true, " address-family ipv4 unicast\n  neighbor %s activate\n  neighbor %s prefix-list OUT out", n.address, n.address)
	line(n.long, "  neighbor %s route-map LONG out", n.address)
	for i := range n.exports {
		line(true, "  network 198.51.100.%d/32", i)
	}
	line(true, " exit-address-family")
	line(!n.only4, " address-family ipv6 unicast\n  neighbor %s activate\n  neighbor %s prefix-list OUT6 out\n exit-address-family", n.address, n.address)
	for _, f := range []string{"ipv4 multicast", "ipv4 vpn", "ipv4 labeled-unicast", "ipv4 flowspec", "ipv6 multicast", "ipv6 vpn", "ipv6 flowspec", "l2vpn evpn"} {
		line(n.long, " address-family %s\n  neighbor %s activate\n exit-address-family", f, n.address)
	}
	for i, list := range longCommunities(50, "65000:1:%d", " ") {
		line(n.long, "route-map LONG permit %d\n set large-community %s additive\n on-match next\nexit", i+1, list)
	}
	files := map[string]string{
		"zebra": "hostname router\nlog stdout informational\n",
		"bfdd":  fmt.Sprintf("hostname router\nlog stdout informational\nbfd\n profile fast\n  detect-multiplier %d\n  receive-interval 300\n  transmit-interval 300\n !\n!\n", cmp.Or(n.packets, 3)),
		"bgpd":  b.String(),
	}
	account, err := user.Lookup("frr")
	if err != nil {
		t.Fatalf("no user frr (%v): install the package frr (tools/setup.sh frr)", err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Chown(f.dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(f.dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range []program.Program{program.Zebra, program.BFDd, program.BGPd} {
		d := p.Name
		file := filepath.Join(f.dir, d+".conf")
		if err := os.WriteFile(file, []byte(files[d]), 0o644); err != nil {
			t.Fatal(err)
		}
		argv := []string{
			need(t, p), "-u", "frr", "-g", "frr", "-f", file, "-i", filepath.Join(f.dir, d+".pid"),
			"-z", filepath.Join(f.dir, "zebra.sock"), "--vty_socket", f.dir, "-A", "127.0.0.1", "-P", "0",
		}
		if d == "bfdd" {
			argv = append(argv, "--bfdctl", filepath.Join(f.dir, "bfdctl.sock"))
		}
		f.processes = append(f.processes, daemon(t, m, argv...))
		eventually(t, d+" answers", func() bool { _, err := f.ask("-d", d, "-c", "show version"); return err == nil })
	}
}

func (f *frr) ask(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := f.m.Command(ctx, append([]string{f.shell, "--vty_socket", f.dir}, args...)...).Output()
	return string(out), err
}

func (f *frr) refresh(t *testing.T) {
	t.Helper()
	if out, err := f.ask("-d", "bgpd", "-c", "clear bgp * soft in"); err != nil {
		t.Fatalf("vtysh: %v: %s", err, out)
	}
}

func (f *frr) bfd(t *testing.T) string {
	t.Helper()
	var peer struct {
		ID   uint32
		Up   int `json:"session-up"`
		Down int `json:"session-down"`
	}
	for _, what := range []string{"", "counters "} {
		out, err := f.ask("-d", "bfdd", "-c", "show bfd peers "+what+"json")
		if err != nil {
			t.Fatalf("vtysh: %v: %s", err, out)
		}
		list := []any{&peer}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatalf("vtysh: %v: %s", err, out)
		}
	}
	if peer.Up == 0 {
		return ""
	}
	return fmt.Sprintf("discriminator %d, %d times up, %d times down", peer.ID, peer.Up, peer.Down)
}

func (f *frr) bfdOver(t *testing.T) bool {
	t.Helper()
	out, err := f.ask("-d", "bgpd", "-c", "show bgp neighbors json")
	if err != nil {
		t.Fatalf("vtysh: %v: %s", err, out)
	}
	peers := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(out), &peers); err != nil {
		t.Fatalf("vtysh: %v: %s", err, out)
	}
	watched := false
	for _, raw := range peers {
		var peer struct {
			BFD *struct{ Status string } `json:"peerBfdInfo"`
		}
		if json.Unmarshal(raw, &peer) != nil || peer.BFD == nil {
			continue // not a peer
		}
		watched = true
		if peer.BFD.Status == "Up" {
			return false
		}
	}
	if !watched {
		t.Fatalf("no peer has BFD: %s", out)
	}
	return true
}

func (f *frr) bfdEndsRestart() bool { return false }

func (f *frr) freeze(t *testing.T, frozen bool) { signal(t, frozen, f.processes...) }

func (f *frr) route(t *testing.T, prefix string) (seen, bool) {
	t.Helper()
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	out, err := f.ask("-d", "bgpd", "-c", "show bgp "+family+" unicast "+prefix+" json")
	if err != nil {
		t.Fatalf("vtysh: %v: %s", err, out)
	}
	return frrRoute(t, out)
}

func asNumbers(list ...uint32) string { return fmt.Sprint(slices.Clone(list)) }

// lockedBuffer is a bytes.Buffer for a writer and a reader at the same time.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

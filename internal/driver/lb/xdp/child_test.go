package xdp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fairlead.dev/internal/driver/bpf"
	"fairlead.dev/internal/driver/lb/lbtest"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
)

// asChild makes the test binary a process that has a data plane and does what it is told
// over the unix socket in childDir.
const asChild = "FAIRLEAD_XDP_TEST_CHILD"

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	if dir := os.Getenv(asChild); dir != "" {
		if err := child(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	lbtest.Main(m, subject)
}

// order is what a child is told. Zero fields are left out.
type order struct {
	Machine   string
	Nodes     map[string]*model.Node
	Frontends []*model.Balanced // all of them
	Unready   []string
	Guarded   map[netip.Addr][]model.FrontendKey
	Query     *model.FlowQuery
	Capture   string // a reason: answer once a packet was dropped for it
	Glimpse   bool   // capture, and end it before a packet was dropped
	Close     bool   // and remove everything
}

// report is what a child answers.
type report struct {
	Error    string
	Observed []model.FrontendObserved
	Figures  []model.FrontendFigures
	Drops    map[string]uint64
	Flows    []model.Flow
	MapBytes uint64
	Captured bpf.Captured
}

func child(dir string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := New(Config{Dir: filepath.Join(dir, "bpf"), Interfaces: strings.Fields(os.Getenv(asChild + "_INTERFACES")), Sizes: smallSizes, Log: log})
	if err != nil {
		return err
	}
	d.probe.every = 100 * time.Millisecond
	go func() {
		if err := d.Run(context.Background()); err != nil {
			log.Error("it does not run", "error", err)
		}
	}()
	socket := filepath.Join(dir, "socket")
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		var o order
		if err := json.NewDecoder(bufio.NewReader(c)).Decode(&o); err != nil {
			return err
		}
		if err := json.NewEncoder(c).Encode(carryOut(d, o)); err != nil {
			return err
		}
		_ = c.Close()
		if o.Close {
			return nil
		}
	}
}

func carryOut(d *DataPlane, o order) (r report) {
	fail := func(err error) {
		if err != nil {
			r.Error += err.Error() + "\n"
		}
	}
	if o.Machine != "" {
		b := model.Balancing{Machine: o.Machine, Nodes: o.Nodes, Frontends: map[model.FrontendKey]*model.Balanced{}, Unready: map[model.FrontendKey]bool{}, Guarded: o.Guarded}
		for _, f := range o.Frontends {
			b.Frontends[f.Frontend.FrontendKey] = f
		}
		for _, text := range o.Unready {
			k, err := model.ParseFrontend(text)
			fail(err)
			b.Unready[k] = true
		}
		fail(d.Set(b))
	}
	if o.Capture != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		fail(d.Capture(ctx, []string{o.Capture}, func() {}, func(c bpf.Captured) {
			r.Captured = c
			cancel()
		}))
		cancel()
	}
	if o.Glimpse {
		ctx, cancel := context.WithCancel(context.Background())
		fail(d.Capture(ctx, []string{reasons[len(reasons)-1]}, cancel, func(bpf.Captured) {}))
		cancel()
	}
	r.Observed = d.Observed()
	var err error
	r.Figures, r.Drops, err = d.Figures()
	fail(err)
	if o.Query != nil {
		r.Flows, _, err = d.Flows(*o.Query)
		fail(err)
	}
	r.MapBytes = d.MapBytes()
	if o.Close {
		fail(d.Close(false))
	}
	return r
}

// balancer is a machine of a lab with a child.
type balancer struct {
	t   *testing.T
	m   *lab.Machine
	dir string
	p   *lab.Process
	// uplinks are its interfaces, from eth0 on.
	uplinks string
}

// balancer starts a child in a machine with so many interfaces.
func startBalancer(t *testing.T, m *lab.Machine, uplinks int) *balancer {
	t.Helper()
	dir, err := os.MkdirTemp("", "fl-xdp") // short: a socket's path is
	must(t, err)
	b := &balancer{t: t, m: m, dir: dir}
	for i := range uplinks {
		b.uplinks += fmt.Sprintf(" eth%d", i)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(filepath.Join(dir, "bpf"), unix.MNT_DETACH)
		must(t, os.RemoveAll(dir))
	})
	b.start()
	return b
}

func (b *balancer) start() {
	b.t.Helper()
	var err error
	b.p, err = b.m.Start(b.t.Context(), lab.ProcessSpec{
		Name: "balancer", Argv: []string{os.Args[0]}, Log: filepath.Join(b.dir, "log"),
		Env: []string{asChild + "=" + b.dir, asChild + "_INTERFACES=" + b.uplinks},
	})
	must(b.t, err)
}

// tell has the child carry an order out.
func (b *balancer) tell(o order) report {
	b.t.Helper()
	ctx := deadline(b.t)
	for {
		r, err := b.try(o)
		if err == nil {
			if r.Error != "" {
				b.t.Fatalf("%s: %s\n%s", b.m.Name(), r.Error, b.log())
			}
			return r
		}
		if !b.p.Running() {
			b.t.Fatalf("%s: the child ended:\n%s", b.m.Name(), b.log())
		}
		pause(ctx, b.t, "%s: %v", b.m.Name(), err)
	}
}

func (b *balancer) try(o order) (r report, err error) {
	c, err := net.Dial("unix", filepath.Join(b.dir, "socket"))
	if err != nil {
		return r, err
	}
	defer func() { _ = c.Close() }()
	if err := json.NewEncoder(c).Encode(o); err != nil {
		return r, err
	}
	return r, json.NewDecoder(c).Decode(&r)
}

func (b *balancer) log() string {
	text, _ := os.ReadFile(filepath.Join(b.dir, "log"))
	return string(text)
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func pause(ctx context.Context, t *testing.T, format string, args ...any) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatalf("it does not come about: "+format, args...)
	case <-time.After(20 * time.Millisecond):
	}
}

// nodeOf is a machine as others reach it.
func nodeOf(m *lab.Machine) *model.Node {
	return &model.Node{Name: m.Name(), Tunnel4: m.Addr4(), Tunnel6: m.Addr6(), Decaps: true}
}

// addressOf is the machine's address of a VIP's family.
func addressOf(m *lab.Machine, vip netip.Addr) netip.Addr {
	if vip.Is4() {
		return m.Addr4()
	}
	return m.Addr6()
}

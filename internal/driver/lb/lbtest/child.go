package lbtest

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"sync"
	"syscall"
	"testing"

	"fairlead.dev/internal/model"
)

// asChild makes this test binary the data plane, told what to do on standard input.
const asChild = "FAIRLEAD_LBTEST_CHILD"

// Main is for TestMain: it runs the tests, or is the data plane that they talk to.
func Main(m *testing.M, s Subject) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	if err := serve(s); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "lbtest child:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type request struct {
	Op       string
	Set      *balancing
	Balanced *model.Balanced
	Query    model.FlowQuery
	Keys     []model.FrontendKey
	Leave    bool
}

// balancing is model.Balancing in a form that travels.
type balancing struct {
	Machine   string
	Frontends []model.Balanced
	Nodes     []model.Node
	Unready   []model.FrontendKey
}

type response struct {
	Err         string
	Unsupported bool
	Observed    []model.FrontendObserved
	Figures     []model.FrontendFigures
	Drops       map[string]uint64
	Flows       []model.Flow
	Told        []model.FlowEvent
	Truncated   bool
	Text        string
}

func serve(s Subject) error {
	in, out := gob.NewDecoder(os.Stdin), gob.NewEncoder(os.Stdout)
	p, err := s.New()
	if err != nil {
		return out.Encode(response{Err: "new: " + err.Error(), Unsupported: errors.Is(err, errors.ErrUnsupported)})
	}
	if err := out.Encode(response{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	known := map[model.FrontendKey]*model.Balanced{}
	var tells told
	for {
		var q request
		if err := in.Decode(&q); err != nil {
			return err
		}
		var r response
		var err error
		switch q.Op {
		case "set":
			err = p.Set(q.Set.model(known))
		case "observed":
			r.Observed = p.Observed()
		case "supports":
			err = p.Supports(q.Balanced)
		case "figures":
			r.Figures, r.Drops, err = p.Figures()
		case "flows":
			r.Flows, r.Truncated, err = p.Flows(q.Query)
		case "watch":
			err = tells.watch(ctx, p, q.Keys)
		case "told":
			r.Told, err = tells.take()
		case "close":
			cancel()
			err = errors.Join(<-ended, p.Close(q.Leave))
		case "dump":
			r.Text, err = s.Dump()
		case "meddle":
			err = s.Meddle()
		case "damage":
			err = s.Damage()
		case "repair":
			err = s.Repair(p)
		}
		if err != nil {
			r.Err, r.Unsupported = err.Error(), errors.Is(err, errors.ErrUnsupported)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// model gives what did not change the same pointers as before.
func (b *balancing) model(known map[model.FrontendKey]*model.Balanced) model.Balancing {
	m := model.Balancing{Machine: b.Machine, Frontends: map[model.FrontendKey]*model.Balanced{}, Nodes: map[string]*model.Node{}, Unready: map[model.FrontendKey]bool{}}
	for _, f := range b.Frontends {
		key := f.Frontend.FrontendKey
		if old := known[key]; old == nil || !reflect.DeepEqual(*old, f) {
			known[key] = &f
		}
		m.Frontends[key] = known[key]
	}
	for _, n := range b.Nodes {
		m.Nodes[n.Name] = &n
	}
	for _, k := range b.Unready {
		m.Unready[k] = true
	}
	return m
}

func flat(m model.Balancing) *balancing {
	b := &balancing{Machine: m.Machine}
	for _, f := range m.Frontends {
		b.Frontends = append(b.Frontends, *f)
	}
	for _, n := range m.Nodes {
		b.Nodes = append(b.Nodes, *n)
	}
	for k := range m.Unready {
		b.Unready = append(b.Unready, k)
	}
	return b
}

// plane is a data plane under test: in this process or a child.
type plane struct {
	t       *testing.T
	subject Subject

	mu   sync.Mutex
	own  DataPlane // in this process
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	in   *gob.Encoder
	out  *gob.Decoder
}

// start starts the data plane in the namespace, or in this process without one.
func start(t *testing.T, s Subject, in *space, env map[string]string) *plane {
	t.Helper()
	p := &plane{t: t, subject: s}
	if s.InProcess {
		own, err := s.New()
		must(t, err)
		p.own = own
		return p
	}
	p.cmd = exec.Command("/proc/self/exe")
	p.cmd.Env = append(os.Environ(), asChild+"=1")
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := p.cmd.StdinPipe()
	must(t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	p.done = make(chan struct{})
	must(t, in.exec(p.cmd, p.done))
	t.Cleanup(p.kill)
	p.in, p.out = gob.NewEncoder(stdin), gob.NewDecoder(stdout)
	var r response
	if err := p.out.Decode(&r); err != nil || r.Err != "" {
		t.Fatalf("start the data plane: %v %s", err, r.Err)
	}
	return p
}

// kill ends the process without warning.
func (p *plane) kill() {
	if p.cmd != nil && p.cmd.Process != nil && p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		close(p.done)
	}
}

func (p *plane) call(q request) (response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var r response
	if p.own != nil {
		var err error
		switch q.Op {
		case "dump":
			r.Text, err = p.subject.Dump()
		case "meddle":
			err = p.subject.Meddle()
		case "damage":
			err = p.subject.Damage()
		case "repair":
			err = p.subject.Repair(p.own)
		}
		return r, err
	}
	if err := p.in.Encode(q); err != nil {
		return r, fmt.Errorf("ask the child: %w", err)
	}
	if err := p.out.Decode(&r); err != nil {
		return r, fmt.Errorf("ask the child: %w", err)
	}
	switch {
	case r.Err != "" && r.Unsupported:
		return r, fmt.Errorf("%s (%w)", r.Err, errors.ErrUnsupported)
	case r.Err != "":
		return r, errors.New(r.Err)
	}
	return r, nil
}

func (p *plane) set(b model.Balancing) {
	p.t.Helper()
	var err error
	if p.own != nil {
		err = p.own.Set(b)
	} else {
		_, err = p.call(request{Op: "set", Set: flat(b)})
	}
	must(p.t, err)
}

func (p *plane) observed() map[model.FrontendKey]model.FrontendObserved {
	p.t.Helper()
	var all []model.FrontendObserved
	if p.own != nil {
		all = p.own.Observed()
	} else {
		r, err := p.call(request{Op: "observed"})
		must(p.t, err)
		all = r.Observed
	}
	by := map[model.FrontendKey]model.FrontendObserved{}
	for i, o := range all {
		if i > 0 && all[i-1].Compare(o.FrontendKey) >= 0 {
			p.t.Errorf("observed is not sorted and unique: %v before %v", all[i-1].FrontendKey, o.FrontendKey)
		}
		by[o.FrontendKey] = o
	}
	return by
}

func (p *plane) supports(f *model.Balanced) error {
	p.t.Helper()
	if p.own != nil {
		return p.own.Supports(f)
	}
	_, err := p.call(request{Op: "supports", Balanced: f})
	return err
}

func (p *plane) figures() (map[model.FrontendKey]model.FrontendFigures, map[string]uint64) {
	p.t.Helper()
	var r response
	var err error
	if p.own != nil {
		r.Figures, r.Drops, err = p.own.Figures()
	} else {
		r, err = p.call(request{Op: "figures"})
	}
	must(p.t, err)
	by := map[model.FrontendKey]model.FrontendFigures{}
	for _, f := range r.Figures {
		by[f.FrontendKey] = f
	}
	return by, r.Drops
}

func (p *plane) flows(q model.FlowQuery) ([]model.Flow, bool) {
	p.t.Helper()
	if p.own != nil {
		flows, truncated, err := p.own.Flows(q)
		must(p.t, err)
		return flows, truncated
	}
	r, err := p.call(request{Op: "flows", Query: q})
	must(p.t, err)
	return r.Flows, r.Truncated
}

func (p *plane) close(leave bool) {
	p.t.Helper()
	if p.own != nil {
		must(p.t, p.own.Close(leave))
		return
	}
	_, err := p.call(request{Op: "close", Leave: leave})
	must(p.t, err)
	p.kill()
}

func (p *plane) do(op string) string {
	p.t.Helper()
	r, err := p.call(request{Op: op})
	must(p.t, err)
	return r.Text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// backendFigures finds a backend among a frontend's.
func backendFigures(f model.FrontendFigures, at netip.AddrPort) model.BackendFigures {
	for _, b := range f.Backends {
		if b.Address == at {
			return b
		}
	}
	return model.BackendFigures{}
}

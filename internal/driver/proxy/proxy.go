package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// The states of a proxy, as model.ProxyStatus names them.
const (
	Starting = "starting"
	Ready    = "ready"
	Draining = "draining"
	Backoff  = "backoff"
	Stopped  = "stopped"
)

// StopPolicy is the treatment of Envoy when Run ends.
type StopPolicy string

const (
	// Leave lets Envoy run on; the next Run adopts it. The default: an agent that
	// stops or is upgraded drops nothing.
	Leave StopPolicy = "leave"
	// Drain lets connections finish, within the drain time, and ends Envoy.
	Drain StopPolicy = "drain"
)

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 10 * time.Second
	// steadyAfter is how long Envoy must have run for the backoff to start over.
	steadyAfter = 30 * time.Second
	// holderTime is how long the process that holds the lock is looked for.
	holderTime = 5 * time.Second
	lookOften  = 20 * time.Millisecond // while it is not ready
	lookEvery  = 2 * time.Second
	maxVersion = 64 // bytes
)

// KillAfter is the time that Envoy has to end after its connections have ended or its drain
// time is over.
const KillAfter = 5 * time.Second

// Config of a Supervisor.
type Config struct {
	// Binary is Envoy's path, or a name to look up on PATH. Default "envoy".
	Binary string
	RunDir string // required: sockets, lock, bootstrap and log
	// ADSSocket is where Envoy gets its configuration. Required. Like RunDir it may be relative
	// to the directory in which New is called.
	ADSSocket string
	NodeID    string // required: the machine's name
	// User is the user that Envoy runs as; it can access only the files of RunDir that it needs. An
	// adopted Envoy keeps its user.
	User User
	// Concurrency is the number of Envoy's threads; 0 is one a processor.
	Concurrency int
	// Bootstrap adds limits; its sockets and node are set here.
	Bootstrap xds.BootstrapOptions
	DrainTime time.Duration // default 30 s
	// HungAfter is how long Envoy may neither answer nor run at all before it is
	// replaced. Default 60 s.
	HungAfter time.Duration
	OnStop    StopPolicy // default Leave
	// Output takes what Envoy writes to its standard output and standard error, line by line. nil:
	// it stays in the log, of which the last 16 to 32 MiB are kept.
	Output io.Writer
	Log    *slog.Logger     // required
	Now    func() time.Time // required
}

// Supervisor keeps one Envoy running. Its methods are safe for concurrent use.
type Supervisor struct {
	config    Config
	admin     *admin
	ejections *ejections
	copy      *logCopy // nil without Output

	replace  chan string  // why the present Envoy is to be
	gathered atomic.Int64 // when Traffic was asked for last, in nanoseconds

	mu      sync.Mutex
	status  model.ProxyStatus
	changed func()
}

// New prepares a supervisor. It touches nothing outside of the process.
func New(c Config) (*Supervisor, error) {
	if c.RunDir == "" || c.ADSSocket == "" || c.NodeID == "" || c.Log == nil || c.Now == nil {
		return nil, errors.New("proxy: RunDir, ADSSocket, NodeID, Log and Now are required")
	}
	if c.Binary == "" {
		c.Binary = "envoy"
	}
	if c.DrainTime <= 0 {
		c.DrainTime = 30 * time.Second
	}
	if c.HungAfter <= 0 {
		c.HungAfter = time.Minute
	}
	switch c.OnStop {
	case "":
		c.OnStop = Leave
	case Leave, Drain:
	default:
		return nil, fmt.Errorf("proxy: stop policy %q: it is %s or %s", c.OnStop, Leave, Drain)
	}
	// Envoy runs in the root directory, and the next supervisor perhaps in another one.
	for _, path := range []*string{&c.RunDir, &c.ADSSocket} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("proxy: %w", err)
		}
		*path = absolute
	}
	s := &Supervisor{config: c, changed: func() {}, replace: make(chan string, 1)}
	s.admin = newAdmin(s.path(adminSocket))
	s.ejections = newEjections(s.path("outliers.log"), c.Now)
	// Not Stopped: what ran before this agent may serve, and others are to leave it its connections.
	s.status.State, s.status.Message = Starting, "the agent has just started"
	if n := len(s.admin.path); n > 107 { // sun_path of unix(7)
		return nil, fmt.Errorf("proxy: the socket path %s has %d bytes, a Unix socket allows 107: choose a shorter run directory", s.admin.path, n)
	}
	return s, nil
}

func (s *Supervisor) path(name string) string { return filepath.Join(s.config.RunDir, name) }

// Status is the proxy as it was last seen.
func (s *Supervisor) Status() model.ProxyStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// set changes the status and tells of it.
func (s *Supervisor) set(f func(*model.ProxyStatus)) {
	s.mu.Lock()
	was := s.status
	f(&s.status)
	is, changed := s.status, s.changed
	s.mu.Unlock()
	if was != is {
		changed()
	}
}

// Warming names the clusters that Envoy has accepted and does not use yet.
func (s *Supervisor) Warming(ctx context.Context) ([]string, error) {
	return s.admin.clusters(ctx, warmingClusters)
}

// Active names the clusters that Envoy uses.
func (s *Supervisor) Active(ctx context.Context) ([]string, error) {
	return s.admin.clusters(ctx, activeClusters)
}

// Listeners returns the listeners that accept connections, and the prerequisites of those
// that do not yet, or not in their newest version.
func (s *Supervisor) Listeners(ctx context.Context) (serving map[string]struct{}, warming map[string][]string, err error) {
	return s.admin.listeners(ctx)
}

// Routes are the versions of the named route configurations that requests find.
func (s *Supervisor) Routes(ctx context.Context, names []string) (map[string]string, error) {
	return s.admin.routes(ctx, names)
}

// Replace drains and ends the running Envoy, and starts another one.
func (s *Supervisor) Replace(reason string) {
	select {
	case s.replace <- reason:
	default: // it is about to be
	}
}

// Drain has Envoy close each connection after its current response, and accept new ones
// as before; false undoes it. It does not apply to an Envoy that is started later.
func (s *Supervisor) Drain(ctx context.Context, on bool) error { return s.admin.retire(ctx, on) }

// Connections returns the number of clients' connections to Envoy, and the number that it
// has accepted since it started.
func (s *Supervisor) Connections(ctx context.Context) (open, taken uint64, err error) {
	_, open, taken, err = s.admin.figures(ctx)
	return open, taken, err
}

// Run keeps Envoy running until ctx is done. It is called once at a time.
func (s *Supervisor) Run(ctx context.Context, changed func()) error {
	s.mu.Lock()
	s.changed = changed
	s.mu.Unlock()
	if err := os.MkdirAll(s.config.RunDir, 0o700); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	lockPath, err := realPath(s.path("envoy.lock"))
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	defer s.copyLog()()
	said := ""
	for wait := time.Duration(0); ; {
		p, err := s.obtain(ctx, lockPath)
		if err == nil {
			said = ""
			err = s.watch(ctx, p)
		}
		if ctx.Err() != nil {
			s.finish(p)
			return nil
		}
		if p != nil && s.config.Now().Sub(p.began) >= steadyAfter {
			wait = 0
		}
		message := err.Error()
		s.set(func(st *model.ProxyStatus) {
			st.State, st.Message, st.RSSBytes, st.Requests = Backoff, message, 0, 0
		})
		if message != said || p != nil {
			said = message
			s.config.Log.Error("no proxy", "reason", message, "again_in", wait)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		if wait = min(2*wait, backoffMost); wait == 0 {
			wait = backoffFirst
		}
	}
}

// obtain gives the Envoy that is alive, or starts one.
func (s *Supervisor) obtain(ctx context.Context, lockPath string) (*process, error) {
	deadline := time.NewTimer(holderTime)
	defer deadline.Stop()
	tick := time.NewTicker(5 * lookOften)
	defer tick.Stop()
	for {
		if err := s.secure(); err != nil {
			return nil, err
		}
		lock, err := takeLock(lockPath)
		if err == nil {
			defer lock.Close() // Envoy has its own by then
			s.endUnlocked()
			return s.start(lock)
		}
		if !errors.Is(err, errAlive) {
			return nil, err
		}
		if n := s.noted(); n != nil && n.alive() {
			return s.inherit(ctx, n.PID, n.alive)
		}
		if pid := holder(lockPath); pid != 0 {
			return s.inherit(ctx, pid, func() bool { return holds(pid, lockPath) })
		}
		select { // whoever has the lock may be about to start an Envoy
		case <-tick.C:
		case <-deadline.C:
			if n := s.noted(); n != nil && !n.alive() && !s.config.User.same() {
				// The Envoy that had it is dead, and gave it to somebody before.
				s.config.Log.Error("the proxy's lock outlived the proxy: creating another one", "lock", lockPath)
				if err := os.Rename(lockPath, lockPath+".old"); err != nil {
					return nil, fmt.Errorf("put the proxy's lock aside: %w", err)
				}
				deadline.Reset(holderTime)
				continue
			}
			return nil, fmt.Errorf("%s is locked, but no envoy of this user holds it: find its process with `fuser %s`", lockPath, lockPath)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// endUnlocked ends an Envoy that lives and has let go of the lock, which none does by itself: it
// would serve beside the next one.
func (s *Supervisor) endUnlocked() {
	n := s.noted()
	if n == nil || !n.alive() {
		return
	}
	p, err := adopt(n.PID, n.alive, s.config.Now())
	if err != nil {
		return // it has just gone
	}
	s.config.Log.Error("the proxy has released its lock, which no Envoy does by itself; ending the proxy", "pid", n.PID)
	p.signal(syscall.SIGKILL)
	select {
	case <-p.exited:
	case <-time.After(KillAfter):
	}
}

// start writes the bootstrap and starts Envoy.
func (s *Supervisor) start(lock *os.File) (*process, error) {
	binary, err := find(s.config.Binary)
	if err != nil {
		return nil, err
	}
	bootstrap, err := s.bootstrap()
	if err != nil {
		return nil, err
	}
	if err := s.furnish(bootstrap); err != nil {
		return nil, err
	}
	if err := s.boundLog(); err != nil {
		return nil, err
	}
	log, err := openLog(s.path("envoy.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	begins, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("open the proxy's log: %w", err)
	}
	if err := lock.Truncate(0); err != nil { // Envoy could have written into it
		return nil, fmt.Errorf("empty the proxy's lock: %w", err)
	}
	args := append(s.configured(bootstrap),
		"--disable-hot-restart", "-l", "warning",
		"--file-flush-interval-msec", "1000", // what it takes out is to be known soon
		"--drain-time-s", strconv.Itoa(int(max(1, s.config.DrainTime.Seconds()))),
	)
	if s.config.Concurrency > 0 {
		args = append(args, "--concurrency", strconv.Itoa(s.config.Concurrency))
	}
	p, err := s.spawn(binary, args, lock, log)
	if err != nil {
		return nil, err
	}
	p.log = begins
	s.note(p, binary, bootstrap)
	s.set(func(st *model.ProxyStatus) {
		*st = model.ProxyStatus{State: Starting, Starts: st.Starts + 1, Message: "it was just started"}
	})
	s.config.Log.Info("proxy started", "pid", p.pid, "binary", binary, "user", s.config.User)
	return p, nil
}

func (s *Supervisor) bootstrap() ([]byte, error) {
	o := s.config.Bootstrap
	o.NodeID, o.ADSSocket, o.AdminSocket, o.OutlierLog = s.config.NodeID, s.toEnvoy(s.config.ADSSocket), s.admin.path, s.toEnvoy(s.ejections.path)
	if !s.config.User.same() {
		o.AdminSocket, o.AdminMode = filepath.Join(userDir, adminSocket), 0o660 // the agent is in its group
	}
	data, err := protojson.Marshal(xds.Bootstrap(o))
	if err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	// protojson varies its spaces on purpose; the note compares bytes.
	var canonical any
	if err := json.Unmarshal(data, &canonical); err != nil {
		return nil, fmt.Errorf("encode bootstrap: %w", err)
	}
	return json.MarshalIndent(canonical, "", "  ")
}

// inherit adopts the Envoy for which ours vouches; whether it answers does not matter, for
// its traffic goes on all the same. What hangs is found out later, by watch. One that gets
// its configuration from somewhere else is ended, and so is one of another user of which
// nothing is written down.
func (s *Supervisor) inherit(ctx context.Context, pid int, ours func() bool) (*process, error) {
	p, err := adopt(pid, ours, s.config.Now())
	if err != nil {
		return nil, err // it has just gone; the next try starts one
	}
	old, current := s.recall(pid)
	if old != nil {
		p.log = old.Log
	}
	switch {
	case old != nil && (old.ADSSocket != s.config.ADSSocket || old.NodeID != s.config.NodeID):
		s.config.Log.Warn("the proxy of an earlier agent follows another socket or machine name; it is replaced", "pid", pid)
		s.drainAndStop(ctx, p)
		return nil, fmt.Errorf("the proxy of an earlier agent, process %d, was configured for another agent and was replaced", pid)
	case old == nil && !runsAs(pid, os.Geteuid()):
		if !runsAs(pid, int(s.config.User.UID)) {
			return nil, fmt.Errorf("process %d of another user holds the proxy's lock: end it", pid)
		}
		s.config.Log.Warn("the proxy of an earlier agent runs as another user and is not recorded; it is replaced", "pid", pid)
		s.drainAndStop(ctx, p)
		return nil, fmt.Errorf("the proxy of an earlier agent, process %d, ran as another user and was replaced", pid)
	case !current:
		s.config.Log.Warn("the proxy runs with other limits or another binary than are set now; they apply when it is next started", "pid", pid)
	}
	if old != nil && old.UID != 0 && old.alive() {
		if err := s.let(old.GID); err != nil {
			s.config.Log.Warn("the proxy may not reach this agent", "pid", pid, "error", err)
		}
	}
	s.set(func(st *model.ProxyStatus) { st.State, st.Version, st.Message = Starting, "", "it was just adopted" })
	s.config.Log.Info("proxy adopted", "pid", pid)
	return p, nil
}

// watch keeps the status up to date until Envoy exits or ctx is done, and ends one
// that hangs. It returns how Envoy ended.
func (s *Supervisor) watch(ctx context.Context, p *process) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	select {
	case <-s.replace: // was about an Envoy before
	default:
	}
	pulse := pulse{after: s.config.HungAfter}
	hung := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.exited:
			if hung {
				return fmt.Errorf("envoy hung: process %d neither answered nor ran for %s and was ended", p.pid, s.config.HungAfter)
			}
			how := fmt.Sprintf("envoy ended: %s after %s", p.how, s.config.Now().Sub(p.began).Round(time.Millisecond))
			if last := lastLines(s.path("envoy.log"), p.log); last != "" {
				how += "; its last output: " + last
			}
			return errors.New(how)
		case reason := <-s.replace:
			s.config.Log.Warn("the proxy is replaced", "pid", p.pid, "reason", reason)
			s.drainAndStop(ctx, p)
			return errors.New("it was replaced: " + reason)
		case <-timer.C:
		}
		answered := s.look(ctx, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ran, known := running(p.pid)
		if pulse.hangs(s.config.Now(), answered, ran, known) && !hung {
			hung = true
			s.config.Log.Warn("the proxy hangs; ending it", "pid", p.pid, "silent_for", s.config.HungAfter)
			p.signal(syscall.SIGKILL)
		}
		if s.ejections.look() {
			s.mu.Lock()
			changed := s.changed
			s.mu.Unlock()
			changed()
		}
		if s.Status().State == Ready {
			timer.Reset(lookEvery)
		} else {
			timer.Reset(lookOften)
		}
		if err := s.boundLog(); err != nil {
			s.config.Log.Warn("the proxy's log grows", "error", err)
		}
	}
}

// look asks Envoy how it is, and says whether it answered.
func (s *Supervisor) look(ctx context.Context, p *process) (answered bool) {
	err := s.admin.ready(ctx)
	ready := err == nil
	refusal, says := errors.AsType[*answerError](err)
	answered = ready || says
	if ctx.Err() != nil {
		return answered
	}
	was := s.Status()
	version, requests := was.Version, was.Requests
	if answered {
		if version == "" || was.State != Ready && ready {
			if v, err := s.admin.version(ctx); err == nil {
				version = strings.ToValidUTF8(v[:min(len(v), maxVersion)], "") // it goes into reports
			}
		}
		if n, _, _, err := s.admin.figures(ctx); err == nil {
			requests = n
		}
	}
	select {
	case <-p.exited: // watch says so
		return answered
	default:
	}
	s.set(func(st *model.ProxyStatus) {
		st.Version, st.Requests, st.RSSBytes = version, requests, resident(p.pid)
		switch {
		case ready:
			st.State, st.Message = Ready, ""
		case says && refusal.body == "DRAINING": // it was told to (Drain), and serves
			st.State, st.Message = Draining, "connections close after their current response"
		case says:
			st.State, st.Message = Starting, "it says "+refusal.body
		default:
			st.State, st.Message = Starting, "it runs and does not answer: "+err.Error()
		}
	})
	if ready && was.State != Ready {
		s.config.Log.Info("proxy ready", "pid", p.pid, "version", version, "after", s.config.Now().Sub(p.began).Round(time.Millisecond))
	}
	return answered
}

// finish does what the policy says about Envoy when the supervisor ends.
func (s *Supervisor) finish(p *process) {
	if p == nil {
		s.set(func(st *model.ProxyStatus) { st.State = Stopped })
		return
	}
	if s.config.OnStop == Leave {
		s.config.Log.Info("proxy left running", "pid", p.pid)
		return
	}
	s.drainAndStop(context.Background(), p)
	s.set(func(st *model.ProxyStatus) {
		*st = model.ProxyStatus{State: Stopped, Starts: st.Starts, Version: st.Version, Message: "it was drained and ended"}
	})
}

// drainAndStop lets connections finish within the drain time and ends Envoy. New ones are
// taken for most of it, while there are others: whoever sends them may not have heard
// yet. Then they are refused, and what came just before has the rest of the time.
func (s *Supervisor) drainAndStop(ctx context.Context, p *process) {
	s.set(func(st *model.ProxyStatus) {
		st.State, st.Message = Draining, "it ends when its connections have finished"
	})
	ctx, cancel := context.WithTimeout(ctx, s.config.DrainTime)
	defer cancel()
	if err := s.admin.drain(ctx); err != nil {
		s.config.Log.Warn("cannot drain the proxy; ending it", "error", err)
	} else {
		open, done := context.WithTimeout(ctx, s.config.DrainTime*3/4)
		s.quiet(open, p)
		done()
		if err := s.admin.shut(ctx); err != nil {
			s.config.Log.Debug("the proxy accepts connections until it ends", "error", err)
		}
		s.quiet(ctx, p)
	}
	p.stop(context.Background(), KillAfter)
	s.config.Log.Info("proxy ended", "pid", p.pid, "how", p.how)
}

// quiet waits until Envoy has no connections, has exited or ctx is done.
func (s *Supervisor) quiet(ctx context.Context, p *process) {
	tick := time.NewTicker(5 * lookOften)
	defer tick.Stop()
	for {
		if _, open, _, err := s.admin.figures(ctx); err == nil && open == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return
		case <-ctx.Done():
			return
		}
	}
}

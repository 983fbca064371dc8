package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"fairlead.dev/internal/embedded/etcdlog"
	"fairlead.dev/internal/muffle"
)

const (
	// renewInterval is how often certificates are looked at. Short, because a clock may step.
	renewInterval = time.Minute
	// stopLimit bounds the end of a server that ends by itself.
	stopLimit = 30 * time.Second
)

// running is the Server that has this process's hooks, or nil.
var running atomic.Pointer[Server]

// Server is a Kubernetes API in this process.
type Server struct {
	cfg      Config
	pki      *pki
	lock     *dirLock
	listener net.Listener
	store    *store // nil with an outside etcd
	rest     *rest.Config
	probe    *probe
	local    netip.AddrPort
	remote   netip.AddrPort
	control  atomic.Pointer[controllers]

	cancelAPI   context.CancelFunc
	cancelTasks context.CancelFunc
	apiDone     chan struct{} // closed when kube-apiserver returned
	tasks       sync.WaitGroup

	failures chan error // the first reason to end by itself
	stopOnce sync.Once
	stopErr  error
	done     chan struct{}

	mu  sync.Mutex
	err error
}

// Start runs an API on c.DataDir and returns once it is ready, its controllers run and it can be
// used with full rights. ctx bounds the start only: the server runs until Stop, or until it ends
// by itself, which Done and Err tell. On error nothing is left running, except where etcd itself
// broke; the process should end then.
func Start(ctx context.Context, c Config) (*Server, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	takeLog()
	ctx, cancel := context.WithTimeoutCause(ctx, c.StartTimeout, fmt.Errorf("not done after %s", c.StartTimeout))
	defer cancel()

	s := &Server{cfg: c, apiDone: make(chan struct{}), failures: make(chan error, 1), done: make(chan struct{})}
	if err := s.start(ctx); err != nil {
		if running.Load() == s {
			kubeLog.fail()
		}
		stopCtx, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancelStop()
		if stopErr := s.stop(stopCtx); stopErr != nil {
			c.Log.Error("stopping what had started", "error", stopErr)
		}
		return nil, err
	}
	go s.watch()
	return s, nil
}

// start does first what can be refused without a trace: the parts that run come after everything
// was found in order.
func (s *Server) start(ctx context.Context) error {
	c := s.cfg
	began := c.Now()
	if err := prepareDir(c.DataDir); err != nil {
		return err
	}
	var err error
	if s.lock, err = lockDir(c.DataDir); err != nil {
		return err
	}
	if err := removeTemporaries(c.DataDir); err != nil {
		return fmt.Errorf("clean %s: %w", c.DataDir, err)
	}
	ln, err := listen(ctx, c)
	if err != nil {
		return err
	}
	s.listener = ln
	port := uint16(ln.Addr().(*net.TCPAddr).Port)
	s.local = netip.AddrPortFrom(c.localAddress(), port)
	s.remote = netip.AddrPortFrom(c.AdvertiseAddress, port)
	if s.pki, err = openPKI(c); err != nil {
		return err
	}
	s.rest = s.pki.restConfig(s.local)
	if err := s.pki.writeKubeconfig(c.kubeconfigPath(), s.local, s.remote); err != nil {
		return err
	}
	if err := c.prepareAudit(); err != nil {
		return err
	}
	if s.probe, err = newProbe(s.rest); err != nil {
		return err
	}
	if len(c.EtcdServers) != 0 {
		if err := probeEtcd(ctx, c); err != nil {
			return err
		}
	}
	if !running.CompareAndSwap(nil, s) {
		return errors.New("another kubernetes api runs in this process")
	}
	takeCrashes()
	kubeLog.hold(muffle.NewHandler(c.Log.With("component", "kubernetes").Handler(), causeOf))
	etcdlog.SendTo(slog.New(muffle.NewHandler(c.Log.With("component", "etcd-client").Handler(), causeOf)))
	if err := s.startParts(ctx); err != nil {
		return err
	}
	kubeLog.pass()
	c.Log.Info("kubernetes api is ready", "address", s.local, "kubeconfig", c.kubeconfigPath(), "took", c.Now().Sub(began).Round(time.Millisecond))
	return nil
}

func (s *Server) startParts(ctx context.Context) error {
	c := s.cfg
	var err error
	etcdServers := c.EtcdServers
	if len(etcdServers) == 0 {
		s.store, err = startStore(ctx, storeConfig{dataDir: c.DataDir, quota: c.EtcdQuota, reserve: c.DiskReserve, log: c.Log, onFatal: s.fail, now: c.Now})
		if err != nil {
			return err
		}
		etcdServers = []string{s.store.endpoint()}
	}

	// Neither kube-apiserver nor the tasks end with the context of the start.
	life := context.WithoutCancel(ctx)
	apiCtx, cancelAPI := context.WithCancel(life)
	s.cancelAPI = cancelAPI
	options, err := apiServerOptions(apiCtx, apiServerFlags(c, s.pki, etcdServers), c.Stamp, s.listener)
	if err != nil {
		close(s.apiDone)
		return err
	}
	go func() {
		defer close(s.apiDone)
		if err := runAPIServer(apiCtx, options); err != nil {
			s.fail(err)
		}
	}()

	tasks, cancelTasks := context.WithCancel(life)
	s.cancelTasks = cancelTasks
	if s.store != nil {
		s.tasks.Go(func() { s.store.tend(tasks) })
	}
	s.tasks.Go(func() { s.keepCertificates(tasks) })

	if err := s.orFailure(ctx, func(ctx context.Context) error { return awaitReady(ctx, s.probe) }); err != nil {
		return err
	}
	control, err := newControllers(s.rest, s.pki, c)
	if err != nil {
		return err
	}
	s.control.Store(control)
	s.tasks.Go(func() { control.run(tasks) })
	return s.orFailure(ctx, control.await)
}

// orFailure runs wait until it returns, ctx ends or the server fails.
func (s *Server) orFailure(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	result := make(chan error, 1)
	go func() { result <- wait(ctx) }()
	select {
	case err := <-s.failures:
		return err
	case err := <-result:
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return err
	}
}

// fail ends the server for this reason unless it is ending already.
func (s *Server) fail(err error) {
	select {
	case s.failures <- err:
	default:
	}
}

// panicked is called after a panic in a loop of the Kubernetes libraries.
func (s *Server) panicked() {
	if c := s.control.Load(); c != nil {
		c.restart()
	}
}

// watch ends the server when a part of it failed.
func (s *Server) watch() {
	select {
	case <-s.done:
	case err := <-s.failures:
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		s.cfg.Log.Error("kubernetes api ended by itself", "error", err)
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		if err := s.stop(ctx); err != nil {
			s.cfg.Log.Error("stopping the rest of the kubernetes api", "error", err)
		}
	}
}

// keepCertificates renews certificates until ctx ends.
func (s *Server) keepCertificates(ctx context.Context) {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.renewCertificates(); err != nil {
				s.cfg.Log.Error("renewing certificates: it is tried again every minute", "error", err)
			}
		}
	}
}

func (s *Server) renewCertificates() error {
	renewed, err := s.pki.renew(s.cfg.Now())
	if err != nil {
		return err
	}
	if len(renewed) == 0 {
		return nil
	}
	return s.pki.writeKubeconfig(s.cfg.kubeconfigPath(), s.local, s.remote)
}

// RESTConfig returns a copy of the configuration with full rights that reaches the API. It names
// files that are renewed in place, so it stays good for as long as the server runs.
func (s *Server) RESTConfig() *rest.Config { return rest.CopyConfig(s.rest) }

// Address is where this machine reaches the API.
func (s *Server) Address() netip.AddrPort { return s.local }

// Healthy returns nil if the API answers and takes writes, else what is wrong and what to do:
// ErrDiskFull and ErrDatabaseFull can be told with errors.Is.
func (s *Server) Healthy(ctx context.Context) error {
	select {
	case <-s.done:
		return errors.Join(errors.New("the API has ended"), s.Err())
	default:
	}
	if s.store != nil {
		if err := s.store.healthy(); err != nil {
			return err
		}
	}
	return s.probe.ready(ctx)
}

// Done is closed once everything has ended.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err says why the server ended by itself; nil before the end and after Stop.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stop ends the server and waits for it, at most until ctx ends. Whoever uses the API should have
// stopped before.
func (s *Server) Stop(ctx context.Context) error { return s.stop(ctx) }

func (s *Server) stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		defer close(s.done)
		s.stopErr = s.end(ctx)
	})
	return s.stopErr
}

// end stops the parts in the reverse of the order in which they depend on each other.
func (s *Server) end(ctx context.Context) error {
	owner := running.Load() == s
	if owner {
		kubeLog.drop()
		etcdlog.SendTo(nil)
	}
	var errs []error
	await := func(what string, ended <-chan struct{}) {
		select {
		case <-ended:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s did not stop: %w", what, ctx.Err()))
		}
	}
	if s.cancelTasks != nil {
		s.cancelTasks()
		ended := make(chan struct{})
		go func() {
			s.tasks.Wait()
			close(ended)
		}()
		await("controllers", ended)
	}
	if s.cancelAPI != nil {
		s.cancelAPI()
		await("kube-apiserver", s.apiDone)
	}
	if s.store != nil {
		if err := s.store.stop(ctx); err != nil {
			// Its goroutines may still write: the claim on the directory ends with the process.
			return errors.Join(append(errs, err)...)
		}
	}
	if s.listener != nil {
		s.listener.Close() // kube-apiserver has, if it ran
	}
	if owner {
		running.Store(nil)
	}
	if s.lock != nil {
		if err := s.lock.Close(); err != nil {
			errs = append(errs, fmt.Errorf("release lock: %w", err))
		}
	}
	return errors.Join(errs...)
}

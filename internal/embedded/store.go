package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"fairlead.dev/internal/muffle"
)

// memberName names the only member of the etcd in this process; a restore must use the same.
const memberName = "fairlead"

// peerURL satisfies etcd, which wants a member to have one; a single member has no peer to call it.
var peerURL = url.URL{Scheme: "http", Host: "localhost:2380"}

// storeConfig is what a store needs to know.
type storeConfig struct {
	dataDir string
	quota   int64
	reserve uint64
	log     *slog.Logger
	// onFatal is called at most once, when etcd cannot go on. The process must end soon after.
	onFatal func(error)
	now     func() time.Time
}

// store is the etcd of this process.
type store struct {
	storeConfig
	etcd  *embed.Etcd
	level zap.AtomicLevel

	fatalOnce sync.Once
	broken    chan struct{} // closed when etcd gave up; brokenBy then says why
	brokenBy  error

	mu      sync.Mutex
	trouble error // why writes are refused, or nil
}

func (c storeConfig) etcdConfig(lg *zap.Logger) *embed.Config {
	e := embed.NewConfig()
	e.Name = memberName
	e.Dir = etcdDir(c.dataDir)
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lg)
	e.ListenClientUrls = []url.URL{{Scheme: "unix", Path: socketPath(c.dataDir)}}
	// Advertised URLs are checked for host:port, which a unix socket is not; nobody dials them.
	e.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2379"}}
	e.ListenPeerUrls = nil
	e.AdvertisePeerUrls = []url.URL{peerURL}
	e.InitialCluster = e.InitialClusterFromName(e.Name)
	// A single member elects itself; shorter ticks only mean that it does so sooner.
	e.TickMs, e.ElectionMs = 20, 200
	e.QuotaBackendBytes = c.quota
	// What was written since the last snapshot is in memory, and some of it before, for members that
	// lag behind; there are none.
	e.SnapshotCount, e.SnapshotCatchUpEntries = 2000, 100
	// A busy machine is not news; a second is.
	e.WarningUnaryRequestDuration = time.Second
	e.WarningApplyDuration = time.Second
	// kube-apiserver compacts every five minutes; this is for the time when it does not.
	e.AutoCompactionMode = embed.CompactorModePeriodic
	e.AutoCompactionRetention = "1h"
	return e
}

// startStore runs etcd on dataDir and returns once it serves.
func startStore(ctx context.Context, c storeConfig) (*store, error) {
	free, err := freeSpace(c.dataDir)
	if err != nil {
		return nil, err
	}
	if free < c.reserve {
		return nil, fmt.Errorf("%w: %s has %d MiB free and etcd needs %d MiB to start: free some space",
			ErrDiskFull, c.dataDir, free/mebibyte, c.reserve/mebibyte)
	}
	// Only errors count while etcd starts: it warns of its defaults.
	s := &store{storeConfig: c, broken: make(chan struct{}), level: zap.NewAtomicLevelAt(zap.ErrorLevel)}
	lg := zap.New(&zapToSlog{log: slog.New(muffle.NewHandler(c.log.With("component", "etcd").Handler(), causeOf)), level: s.level}, zap.WithFatalHook(fatalHook{s.fail}))

	// etcd gives up by Fatal or Panic where it finds its files damaged, so it starts in a
	// goroutine that it may take with it.
	type started struct {
		etcd *embed.Etcd
		err  error
	}
	result := make(chan started, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				c.log.Error("etcd panicked while starting", "panic", r, "stack", string(debug.Stack()))
				result <- started{err: fmt.Errorf("etcd panicked: %v", r)}
			}
		}()
		if err := discardUnborn(c.dataDir, c.log); err != nil {
			result <- started{err: err}
			return
		}
		e, err := embed.StartEtcd(c.etcdConfig(lg))
		result <- started{e, err}
	}()
	select {
	case r := <-result:
		if r.err != nil {
			return nil, fmt.Errorf("start etcd on %s: %w", c.dataDir, s.explain(r.err))
		}
		s.etcd = r.etcd
	case <-s.broken:
		return nil, fmt.Errorf("start etcd on %s: %w (if its files are damaged, restore a backup: fairlead restore)", c.dataDir, s.brokenBy)
	case <-ctx.Done():
		return nil, fmt.Errorf("start etcd on %s: %w", c.dataDir, context.Cause(ctx))
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		if err := s.checkSpace(ctx); err != nil {
			s.close()
			return nil, fmt.Errorf("start etcd on %s: %w", c.dataDir, err)
		}
		s.level.SetLevel(zap.WarnLevel)
		return s, nil
	case err := <-s.etcd.Err():
		s.close()
		return nil, fmt.Errorf("start etcd on %s: %w", c.dataDir, err)
	case <-s.broken:
		return nil, fmt.Errorf("start etcd on %s: %w", c.dataDir, s.brokenBy)
	case <-ctx.Done():
		s.close()
		return nil, fmt.Errorf("start etcd on %s: %w", c.dataDir, context.Cause(ctx))
	}
}

// explain adds to an error of etcd what its user can do about it.
func (s *store) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("%w: %w: free some space on the file system of %s", ErrDiskFull, err, s.dataDir)
	}
	return err
}

// fail records that etcd cannot go on.
func (s *store) fail(err error) {
	s.fatalOnce.Do(func() {
		s.brokenBy = s.explain(err)
		close(s.broken)
		if s.onFatal != nil {
			s.onFatal(s.brokenBy)
		}
	})
}

func (s *store) endpoint() string { return "unix://" + socketPath(s.dataDir) }

// stop ends etcd; everything acknowledged is on disk already. A broken etcd cannot be stopped: it
// is left to the end of the process.
func (s *store) stop(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.close()
	}()
	select {
	case <-done:
		return nil
	case <-s.broken:
		return s.brokenBy
	case <-ctx.Done():
		return fmt.Errorf("stop etcd: %w", context.Cause(ctx))
	}
}

// close ends etcd without its reports about every listener that closes.
func (s *store) close() {
	s.level.SetLevel(zap.FatalLevel)
	s.etcd.Close()
}

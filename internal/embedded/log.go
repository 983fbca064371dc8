package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"fairlead.dev/internal/muffle"
)

// reportFatal ends the running server instead of the process: klog and etcd call os.Exit where they
// see no way on. It never returns, because the caller holds locks that nobody may get and has
// promised its own callers not to come back.
func reportFatal(err error) {
	if s := running.Load(); s != nil {
		s.fail(err)
	}
	select {}
}

var (
	logOnce, crashOnce sync.Once
	kubeLog            = &heldLog{}
)

// takeLog makes klog, the process-wide logger of the Kubernetes libraries, write to kubeLog.
func takeLog() {
	logOnce.Do(func() { klog.SetSlogLogger(slog.New(kubeHandler{log: kubeLog})) })
}

// LogTo makes the Kubernetes libraries of this process, where nothing else is given to them, log
// their errors to log. Start does that by itself; with Outside it is the caller's choice.
func LogTo(log *slog.Logger) {
	takeLog()
	if running.Load() == nil {
		kubeLog.hold(muffle.NewHandler(log.With("component", "kubernetes").Handler(), causeOf))
		kubeLog.pass()
	}
}

// takeCrashes makes the process-wide ways in which the Kubernetes libraries end a process end the
// running server, or in the case of a panic in one of their loops, only what panicked.
func takeCrashes() {
	crashOnce.Do(func() {
		klog.OsExit = func(code int) {
			reportFatal(fmt.Errorf("kube-apiserver gave up with code %d: the log says why", code))
		}
		// Loops of the controllers and informers run under wait.Until, which calls them again.
		runtime.ReallyCrash = false
		runtime.PanicHandlers = append(runtime.PanicHandlers, func(context.Context, any) {
			if s := running.Load(); s != nil {
				s.panicked()
			}
		})
	})
}

// heldMax bounds what is held of the errors of one start.
const heldMax = 50

// heldLog is where klog's errors go. A start and a stop produce errors about parts that are not
// there yet or any more; they matter only if the start fails, and then they are the explanation.
type heldLog struct {
	mu   sync.Mutex
	next slog.Handler // nil: drop
	wait bool         // keep instead of passing on
	held []func(slog.Handler)
}

// hold keeps what comes until pass or fail.
func (h *heldLog) hold(next slog.Handler) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next, h.wait, h.held = next, true, nil
}

// pass forgets what was held and passes on what comes.
func (h *heldLog) pass() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wait, h.held = false, nil
}

// fail logs what was held and drops what comes.
func (h *heldLog) fail() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, emit := range h.held {
		emit(h.next)
	}
	h.next, h.wait, h.held = nil, false, nil
}

// drop drops what comes.
func (h *heldLog) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next, h.wait, h.held = nil, false, nil
}

func (h *heldLog) handle(emit func(slog.Handler)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.next == nil:
	case !h.wait:
		emit(h.next)
	case len(h.held) < heldMax:
		h.held = append(h.held, emit)
	}
}

// kubeHandler is klog's handler. It passes errors only: klog hands its warnings over as infos, of
// which there are hundreds at start, about itself.
type kubeHandler struct {
	log  *heldLog
	with func(slog.Handler) slog.Handler // attributes and groups, or nil
}

// ofClients are messages of the API server about faults of its clients, which it tells these, too.
// It holds them to be its own.
var ofClients = map[string]bool{
	// An object with a field of a wrong type, which the schema refuses a moment later.
	"[SHOULD NOT HAPPEN] failed to update managedFields": true,
}

// cancelled says that an error is that somebody gave up, a client or we at the end: no fault.
func cancelled(r slog.Record) (is bool) {
	r.Attrs(func(a slog.Attr) bool {
		is = a.Key == "err" && strings.HasSuffix(a.Value.String(), context.Canceled.Error())
		return !is
	})
	return is
}

func (k kubeHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (k kubeHandler) Handle(ctx context.Context, r slog.Record) error {
	ctx = context.WithoutCancel(ctx)
	if ofClients[r.Message] || cancelled(r) {
		r.Level = slog.LevelDebug
	}
	k.log.handle(func(next slog.Handler) {
		if k.with != nil {
			next = k.with(next)
		}
		if next.Enabled(ctx, r.Level) {
			_ = next.Handle(ctx, r) // a log that cannot be written has nowhere to complain
		}
	})
	return nil
}

func (k kubeHandler) and(f func(slog.Handler) slog.Handler) slog.Handler {
	before := k.with
	return kubeHandler{log: k.log, with: func(h slog.Handler) slog.Handler {
		if before != nil {
			h = before(h)
		}
		return f(h)
	}}
}

func (k kubeHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return k.and(func(h slog.Handler) slog.Handler { return h.WithAttrs(a) })
}

func (k kubeHandler) WithGroup(g string) slog.Handler {
	return k.and(func(h slog.Handler) slog.Handler { return h.WithGroup(g) })
}

// ofNewDirectory are messages of etcd 3.6 about every new data directory, until its first consensus
// is stored a moment later. They look like damage and are none.
var ofNewDirectory = map[string]bool{
	"Failed to detect schema version":  true,
	"failed to update storage version": true,
}

// zapToSlog is etcd's logger.
type zapToSlog struct {
	log    *slog.Logger
	level  zap.AtomicLevel
	fields []zapcore.Field
}

func (z *zapToSlog) Enabled(l zapcore.Level) bool { return z.level.Enabled(l) }

func (z *zapToSlog) With(f []zapcore.Field) zapcore.Core {
	return &zapToSlog{log: z.log, level: z.level, fields: append(z.fields[:len(z.fields):len(z.fields)], f...)}
}

func (z *zapToSlog) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if z.Enabled(e.Level) {
		return ce.AddCore(e, z)
	}
	return ce
}

func (z *zapToSlog) Write(e zapcore.Entry, fields []zapcore.Field) error {
	level := slog.LevelInfo
	switch {
	case ofNewDirectory[e.Message]:
		level = slog.LevelDebug
	case e.Level >= zapcore.ErrorLevel:
		level = slog.LevelError
	case e.Level == zapcore.WarnLevel:
		level = slog.LevelWarn
	}
	z.log.LogAttrs(context.Background(), level, e.Message, zapAttrs(append(z.fields[:len(z.fields):len(z.fields)], fields...))...)
	return nil
}

func (z *zapToSlog) Sync() error { return nil }

func zapAttrs(fields []zapcore.Field) []slog.Attr {
	var attrs []slog.Attr
	for _, f := range fields {
		enc := zapcore.NewMapObjectEncoder()
		f.AddTo(enc)
		for k, v := range enc.Fields {
			attrs = append(attrs, slog.Any(k, v))
		}
	}
	return attrs
}

// fatalHook is what etcd's logger runs instead of os.Exit.
type fatalHook struct{ report func(error) }

func (h fatalHook) OnWrite(ce *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := fmt.Errorf("etcd gave up: %s", ce.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			err = fmt.Errorf("etcd gave up: %s: %w", ce.Message, cause)
		}
	}
	h.report(err)
	select {}
}

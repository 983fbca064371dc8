// Package etcdlog sends the log lines of kube-apiserver's etcd client to a slog.Logger.
//
// That client has a logger of its own, built from etcd's default configuration while packages
// initialise, which writes to stderr and cannot be reached afterwards. This package changes the
// default before: packages initialise in the order of their paths once what they import is
// initialised (the Go specification, "Program initialization"), it imports nothing that Kubernetes
// does not need for the same, and its path sorts before k8s.io.
//
// It refuses to do anything else. Lines are dropped until SendTo is called.
package etcdlog

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"
	"sync/atomic"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"
)

const scheme = "fairlead-etcdlog"

var target atomic.Pointer[slog.Logger]

func init() {
	if err := zap.RegisterSink(scheme, func(*url.URL) (zap.Sink, error) { return sink{}, nil }); err != nil {
		panic(err) // the scheme is ours alone
	}
	logutil.DefaultZapLoggerConfig.OutputPaths = []string{scheme + ":"}
	logutil.DefaultZapLoggerConfig.ErrorOutputPaths = []string{scheme + ":"}
}

// SendTo makes log receive what follows; nil drops it.
func SendTo(log *slog.Logger) { target.Store(log) }

// sink receives one JSON object a write.
type sink struct{}

func (sink) Write(line []byte) (int, error) {
	log := target.Load()
	if log == nil {
		return len(line), nil
	}
	fields := map[string]any{}
	if err := json.Unmarshal(line, &fields); err != nil {
		log.Warn(string(line))
		return len(line), nil
	}
	level := slog.LevelDebug
	switch fields["level"] {
	case "warn":
		level = slog.LevelWarn
	case "error", "dpanic", "panic", "fatal":
		level = slog.LevelError
	}
	msg, _ := fields["msg"].(string)
	var attrs []slog.Attr
	for _, key := range []string{"method", "target", "attempt", "error"} {
		if v, ok := fields[key]; ok {
			attrs = append(attrs, slog.Any(key, v))
		}
	}
	log.LogAttrs(context.Background(), level, msg, attrs...)
	return len(line), nil
}

func (sink) Sync() error { return nil }

func (sink) Close() error { return nil }

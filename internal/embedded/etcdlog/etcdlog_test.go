package etcdlog_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/logutil"
	"go.uber.org/zap"

	"fairlead.dev/internal/embedded/etcdlog"
)

func TestLinesArriveWithLevelAndFields(t *testing.T) {
	zl, err := logutil.CreateDefaultZapLogger(zap.InfoLevel)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	etcdlog.SendTo(slog.New(slog.NewTextHandler(&out, nil)))
	zl.Warn("retrying", zap.String("method", "/Txn"), zap.String("error", "gone"))
	etcdlog.SendTo(nil)
	zl.Warn("dropped")
	for _, want := range []string{"level=WARN", "msg=retrying", "method=/Txn", "error=gone"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("log %q lacks %q", out.String(), want)
		}
	}
	if strings.Contains(out.String(), "dropped") {
		t.Errorf("log %q has a line from after SendTo(nil)", out.String())
	}
}

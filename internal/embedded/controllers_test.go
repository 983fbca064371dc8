package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

func TestSuperviseStartsAgainAfterPanicAndReturn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	runs := 0
	// A clock that jumps keeps the pause short: every run seems to have lasted long.
	clock := today
	now := func() time.Time { clock = clock.Add(time.Hour); return clock }
	supervise(ctx, slog.New(slog.NewTextHandler(&log, nil)), now, func(context.Context) error {
		runs++
		switch runs {
		case 1:
			panic("first")
		case 2:
			return errors.New("second")
		}
		cancel()
		return nil
	})
	if runs != 3 {
		t.Errorf("%d runs, want 3", runs)
	}
	for _, want := range []string{"panic: first", "second", "after=1s"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q does not say %q", log.String(), want)
		}
	}
}

func TestHeldLogSpeaksOnlyWhenTheStartFails(t *testing.T) {
	for _, failed := range []bool{false, true} {
		var out bytes.Buffer
		h := &heldLog{}
		log := slog.New(kubeHandler{log: h}).With("from", "klog").WithGroup("g")
		log.Error("before")
		h.hold(slog.NewTextHandler(&out, nil))
		log.Info("chatter")
		log.Error("during", "k", "v")
		if failed {
			h.fail()
		} else {
			h.pass()
		}
		log.Error("later")
		log.Error("given up", "err", fmt.Errorf("read the body: %w", context.Canceled))
		h.drop()
		log.Error("stopping")
		got := out.String()
		if strings.Contains(got, "during") != failed || strings.Contains(got, "later") == failed {
			t.Errorf("start failed %v: log\n%s", failed, got)
		}
		if failed && !strings.Contains(got, "from=klog g.k=v") {
			t.Errorf("attributes are lost: %s", got)
		}
		for _, never := range []string{"before", "chatter", "stopping", "given up"} {
			if strings.Contains(got, never) {
				t.Errorf("log has %q:\n%s", never, got)
			}
		}
	}
}

func TestLogToLeavesARunningServerAlone(t *testing.T) {
	shared.get(t)
	var out bytes.Buffer
	LogTo(slog.New(slog.NewTextHandler(&out, nil)))
	klog.ErrorS(nil, "said by a test that tests the log")
	if out.Len() != 0 || !strings.Contains(shared.log.String(), "said by a test that tests the log") {
		t.Errorf("the server lost its log: %s", out.String())
	}
}

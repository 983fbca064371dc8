package agent

import (
	"log/slog"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func tapEntry(route, path string) *datav3.HTTPAccessLogEntry {
	return &datav3.HTTPAccessLogEntry{
		CommonProperties: &datav3.AccessLogCommon{RouteName: route},
		Request:          &datav3.HTTPRequestProperties{Path: path, RequestMethod: corev3.RequestMethod_GET},
		Response:         &datav3.HTTPResponseProperties{ResponseCode: wrapperspb.UInt32(200)},
	}
}

// Nobody is shown what is beyond the bound, and everybody is told how much that is. What leaves the machine matches a filter.
func TestTapIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	s := newSampler()
	tapper := newTapper(s, nil, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	const shop, news = "HTTPRoute/shop/cart/rules/0/matches/0", "HTTPRoute/news/app/rules/0/matches/0"
	tapper.take(tapEntry(shop, "/"))
	if s.fraction() != 0 {
		t.Error("samples are wanted, and nobody looks")
	}
	tapper.set([]*agentv1.Tap{{Id: 7, Filter: wire.TapFilter(model.TapFilter{Namespace: "shop"})}})
	if s.fraction() != wholeSample {
		t.Errorf("%d percent are wanted", s.fraction())
	}
	for range tapRate + 20 {
		tapper.take(tapEntry(shop, "/?token=hunter2"))
		tapper.take(tapEntry(news, "/"))
	}
	r := tapper.report()
	if len(r.GetRecords()) != tapRate || r.GetDropped()[7] != 20 || r.GetRecords()[0].GetPath() != "/?token=[redacted]" || r.GetUnable() != "" {
		t.Errorf("%d records, %v dropped, %s", len(r.GetRecords()), r.GetDropped(), r.GetUnable())
	}
	now = now.Add(unableAfter)
	if r := tapper.report(); r.GetUnable() != unableToTap || len(r.GetRecords()) != 0 || len(r.GetDropped()) != 0 {
		t.Errorf("a proxy that asks for nothing: %v", r)
	}
	// Not even how many there are tells what a credential begins with.
	tapper.set([]*agentv1.Tap{{Id: 8, Filter: wire.TapFilter(model.TapFilter{Path: "/?token=h"})}})
	for range tapRate + 20 {
		tapper.take(tapEntry(shop, "/?token=hunter2"))
	}
	if r := tapper.report(); len(r.GetRecords()) != 0 || len(r.GetDropped()) != 0 {
		t.Errorf("who asks for the begin of a credential is told %v", r)
	}
	tapper.set(nil)
	if s.fraction() != 0 {
		t.Error("samples are wanted when nobody looks any more")
	}
}

// The proxy records fewer requests where there are many.
func TestSamplesAreFewerWhereRequestsAreMany(t *testing.T) {
	for _, c := range []struct {
		percent      uint32
		rate, enough float64
		want         uint32
	}{
		{100, 10, sampleRate, 100},
		{100, sampleRate, sampleRate, 100},
		{100, 10 * sampleRate, sampleRate, 7},
		{7, sampleRate * 0.7, sampleRate, 7},
		{7, 100, sampleRate, 100},
		{1, 100 * sampleRate, sampleRate, 1},
		{0, 10, sampleRate, 0},
		{100, 10, 50, 100},
		{100, 600, 50, 6},
		{6, 36, 50, 6},
		{6, 36, sampleRate, 100},
	} {
		if got := percentFor(c.percent, c.rate, c.enough); got != c.want {
			t.Errorf("%d %% give %g a second, and %g are enough: %d, want %d", c.percent, c.rate, c.enough, got, c.want)
		}
	}
}

// What is enough for one tap takes nothing from another.
func TestTheMostDemandingTapDecides(t *testing.T) {
	tapper := newTapper(newSampler(), nil, time.Now, slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		enough []uint32
		want   float64
	}{{nil, 0}, {[]uint32{50}, 50}, {[]uint32{50, 0}, sampleRate}, {[]uint32{50, 70}, 70}, {[]uint32{1 << 31}, sampleRate}} {
		var taps []*agentv1.Tap
		for id, n := range c.enough {
			taps = append(taps, &agentv1.Tap{Id: uint64(id), Enough: n}) //nolint:gosec // small
		}
		tapper.set(taps)
		if got := tapper.enough(); got != c.want {
			t.Errorf("of %d %g are enough, want %g", c.enough, got, c.want)
		}
	}
}

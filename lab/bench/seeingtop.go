package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
)

// look has viewers look at top, and if they are to be, each edge scraped once a second, until stop is called.
func (b *seeingBench) look(ctx context.Context, scraped bool) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	again := func(gap time.Duration, do func() error) {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := do(); err != nil && ctx.Err() == nil {
					failed.Store(&err)
				}
				_ = pause(ctx, gap)
			}
		})
	}
	local := b.local()
	for range b.Viewers {
		known := uint64(0)
		again(0, func() error {
			top, err := local.Top(ctx, console.TopQuestion{By: "routes", Limit: 20, After: known})
			known = top.Sample
			return err
		})
	}
	if scraped {
		for _, m := range b.edges {
			again(time.Second, func() error { _, err := scrape(ctx, m, agentAt); return err })
		}
	}
	return func() error {
		cancel()
		wg.Wait()
		if err := failed.Load(); err != nil {
			return fmt.Errorf("who looks fails: %w", *err)
		}
		return nil
	}
}

// local is the console of the plane, asked on its own machine.
func (b *seeingBench) local() console.Client {
	return console.Client{URL: planeAt, HTTP: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: b.machine.Dial}}}
}

// viewers measures how soon top shows a request to one of many viewers, what that costs Envoy, and whether counts are true.
func (b *seeingBench) viewers(ctx context.Context) error {
	b.progress("%d routes: %d viewers of top", b.row.Routes, b.Viewers)
	t := &SeeingTop{Viewers: b.Viewers, Routes: askedRoutes}
	b.row.Top = t
	plain, err := b.underLoad(ctx, t)
	if err != nil {
		return err
	}
	t.Used = toThird(plain * t.Rate / 1e6)
	stop := b.look(ctx, false)
	seen, err := b.underLoad(ctx, t)
	if err != nil {
		return errors.Join(err, stop())
	}
	t.EnvoyRatio = toThird(seen / plain)
	var took []float64
	local, asker := b.local(), b.asker(0)
	for i := range askedRoutes {
		route := b.row.Routes/2 + i
		name := fmt.Sprintf("HTTPRoute/%s/%s", b.namespace(route), routeName(route))
		began := b.Now()
		for range 3 {
			if _, err := b.ask(ctx, asker, 0, seenHost(route)); err != nil {
				return errors.Join(err, stop())
			}
		}
		question := consoleTop
		for shown := false; !shown; {
			top, err := local.Top(ctx, question)
			question.After = top.Sample
			if err != nil || b.Now().Sub(began) > 30*time.Second {
				return errors.Join(err, fmt.Errorf("top does not show %s", name), stop())
			}
			for _, r := range top.Rows {
				shown = shown || r.Name == name && r.Rate > 0
			}
		}
		took = append(took, millis(b.Now().Sub(began)))
	}
	t.SeenP50, t.SeenP99 = percentile(took, 0.5), percentile(took, 0.99)
	if err := stop(); err != nil {
		return err
	}
	stop = b.tap(ctx)
	tapped, err := b.underLoad(ctx, t)
	t.TapRatio = toThird(tapped / plain)
	return errors.Join(err, stop())
}

// tap has somebody see all requests, until stop is called.
func (b *seeingBench) tap(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	over, records := make(chan error, 1), atomic.Uint64{}
	go func() {
		over <- b.local().Tap(ctx, console.TapQuestion{}, func(e v1.TapEvent) error {
			if e.Record != nil {
				records.Add(1)
			}
			return nil
		})
	}()
	return func() error {
		cancel()
		if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the tap fails: %w", err)
		}
		if records.Load() == 0 {
			return errors.New("the tap has shown no request")
		}
		return nil
	}
}

// consoleTop is what the viewer asks for who waits until a request is seen. The others ask for fewer rows of the same.
var consoleTop = console.TopQuestion{By: "routes", Limit: 50}

// underLoad asks some routes at each edge at a fixed rate, compares what top has counted with what clients have, and returns Envoy's
// processor time a request at the first edge, in microseconds.
func (b *seeingBench) underLoad(ctx context.Context, t *SeeingTop) (us float64, err error) {
	const rate, duration = 40, 20 * time.Second // of each route at each edge
	t.Rate = rate * askedRoutes
	before, err := b.counted(ctx)
	if err != nil {
		return 0, err
	}
	envoy, err := b.agents[0].Envoy()
	if err != nil {
		return 0, err
	}
	used, err := processorTime(envoy.Pid.ID)
	if err != nil {
		return 0, err
	}
	sent := map[string]int{}
	first := 0
	var runs []*load.Run
	names := []string{}
	for edge, m := range b.edges {
		for i := range askedRoutes {
			route := 7 + i*(b.row.Routes/askedRoutes-1)
			run, err := load.Start(ctx, load.Config{
				Address: b.entrance(edge), Dial: m.Dial, Host: seenHost(route), Rate: rate, Concurrency: 4, Duration: duration, Now: b.Now,
			})
			if err != nil {
				return 0, err
			}
			runs, names = append(runs, run), append(names, fmt.Sprintf("HTTPRoute/%s/%s", b.namespace(route), routeName(route)))
		}
	}
	for i, run := range runs {
		<-run.Done()
		report := run.Stop()
		if report.Failed > 0 {
			return 0, fmt.Errorf("%d requests failed: %s", report.Failed, report.Why())
		}
		sent[names[i]] += report.Requests
		if i < askedRoutes {
			first += report.Requests
		}
	}
	after, err := processorTime(envoy.Pid.ID)
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, 2*time.Second); err != nil {
		return 0, err
	}
	now, err := b.counted(ctx)
	if err != nil {
		return 0, err
	}
	for name, n := range sent {
		t.Counted = max(t.Counted, toFourth(math.Abs(float64(now[name]-before[name])/float64(n)-1)))
	}
	return float64((after - used).Microseconds()) / float64(first), nil
}

// counted are the requests of each route, by top.
func (b *seeingBench) counted(ctx context.Context) (map[string]uint64, error) {
	body, err := get(ctx, b.machine.HTTPClient(), planeAt+v1.TopPath+"?by=routes")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	var t v1.Top
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, err
	}
	counts := map[string]uint64{}
	for _, r := range t.Rows {
		counts[r.Name] = r.Requests
	}
	return counts, nil
}

// Requests whose durations clients and an edge measure, and how many there are at once.
const timedRequests, timedAtOnce = 4_000, 32

// quantiles compares the durations that an edge tells Prometheus, as a native histogram, with those that clients measured.
func (b *seeingBench) quantiles(ctx context.Context) error {
	b.progress("%d routes: quantiles of %d durations", b.row.Routes, timedRequests)
	route := b.row.Routes / 3
	before, err := durations(ctx, b.edges[0], b.namespace(route))
	if err != nil {
		return err
	}
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: b.edges[0].Dial, MaxConnsPerHost: timedAtOnce, MaxIdleConnsPerHost: timedAtOnce}}
	defer c.CloseIdleConnections()
	took := make([]float64, timedRequests)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	waits := make([]time.Duration, timedRequests)
	for i := range waits { // 15 to 480 ms, each factor as often as another
		waits[i] = time.Duration(15 * math.Exp2(5*random.Float64()) * float64(time.Millisecond))
	}
	if err := inParallel(ctx, timedAtOnce, timedRequests, func(ctx context.Context, i int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.entrance(0)+"/wait/"+waits[i].String(), nil)
		if err != nil {
			return err
		}
		request.Host = seenHost(route)
		began := b.Now()
		answer, err := c.Do(request)
		if err != nil {
			return err
		}
		took[i] = b.Now().Sub(began).Seconds()
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is answered %s", seenHost(route), answer.Status)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := pause(ctx, 6*time.Second); err != nil { // until the edge has its proxy put histograms together again
		return err
	}
	after, err := durations(ctx, b.edges[0], b.namespace(route))
	if err != nil {
		return err
	}
	more, grown := after.Less(before)
	if !grown || more.Count() != timedRequests {
		return fmt.Errorf("the edge has measured %d requests, and clients %d", more.Count(), timedRequests)
	}
	for _, q := range []float64{0.5, 0.9, 0.99} {
		b.row.Top.Quantiles = max(b.row.Top.Quantiles, toFourth(math.Abs(more.Quantile(q)/percentile(took, q)-1)))
	}
	return nil
}

// durations are those of a namespace, by a scrape for native histograms.
func durations(ctx context.Context, m *lab.Machine, namespace string) (h model.Histogram, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, agentAt+"/metrics", nil)
	if err != nil {
		return h, err
	}
	request.Header.Set("Accept", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	answer, err := m.HTTPClient().Do(request)
	if err != nil {
		return h, err
	}
	defer answer.Body.Close()
	for body := bufio.NewReader(answer.Body); ; {
		var family dto.MetricFamily
		if err := protodelim.UnmarshalFrom(body, &family); errors.Is(err, io.EOF) {
			return h, nil
		} else if err != nil {
			return h, fmt.Errorf("read a scrape: %w", err)
		}
		if family.GetName() != "fairlead_request_seconds_by_namespace" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "namespace" && label.GetValue() == namespace {
					return native(metric.GetHistogram()), nil
				}
			}
		}
	}
}

// native is a native histogram of Prometheus, of our schema.
func native(n *dto.Histogram) (h model.Histogram) {
	h.Micros = uint64(n.GetSampleSum() * 1e6)
	index, count, i := int32(0), int64(0), 0
	for _, span := range n.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += n.GetPositiveDelta()[i]
			h.Buckets = append(h.Buckets, model.HistogramBucket{Index: index, Count: uint64(count)}) //nolint:gosec // never negative
			index, i = index+1, i+1
		}
	}
	return h
}

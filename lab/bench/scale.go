package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/delta"
	planes "fairlead.dev/internal/plane"
	"fairlead.dev/lab"
	"fairlead.dev/lab/fleet"
	"fairlead.dev/lab/rig"
)

// ScaleOptions say what one plane carries.
type ScaleOptions struct {
	NetworkOptions
	// Machines are simulated agents; default 1,000.
	Machines int
	// Routes, each of a host of its own; default 20,000.
	Routes int
	// Changes of one route, one after the other; default 10.
	Changes int
	// Rates of changes a second that are tried for Duration each; default 10, 50 and 200, for 20 s.
	Rates    []int
	Duration time.Duration
}

// ScaleResult is what one plane with its own API does for so many machines. The machines are
// simulated: see package fleet. They run on the same processors as the plane.
type ScaleResult struct {
	Machines int `json:"machines"`
	Routes   int `json:"routes"`
	// Write is how long it took to create the routes, before any machine was there.
	Write float64 `json:"write_s"`
	// PlaneAlone is the plane's memory then.
	PlaneAlone float64 `json:"plane_alone_rss_mb"`
	// Join is how long it took until each machine had a certificate, tokens included.
	Join float64 `json:"join_s"`
	// First: all machines connect at once and hold nothing. Again: all end and connect at once, and
	// remember everything, as agents do that are started again. Killed: the plane is killed and
	// started again, from the kill on.
	First  ScaleStart `json:"first"`
	Again  ScaleStart `json:"again"`
	Killed ScaleStart `json:"plane_killed"`
	// Status is the time from when the machines first held everything until each route's status said so.
	Status float64 `json:"status_s"`
	// Change is one changed route, from the API's answer until half of the machines, 99 in 100 and all
	// hold it: medians over the changes, and the worst of all.
	ChangeHalf float64 `json:"change_half_ms"`
	ChangeMost float64 `json:"change_p99_ms"`
	ChangeAll  float64 `json:"change_all_ms"`
	ChangeMax  float64 `json:"change_worst_ms"`
	// Rates are changes at a steady rate.
	Rates []ScaleRate `json:"rates"`
	// Plane is its resident memory at the end.
	Plane float64 `json:"plane_rss_mb"`
}

// ScaleStart is what it takes until all machines hold everything.
type ScaleStart struct {
	// Half, Most and All are when half of the machines, 99 in 100 and all of them did.
	Half float64 `json:"half_s"`
	Most float64 `json:"p99_s"`
	All  float64 `json:"all_s"`
	// Received is what they were sent, in MB (2^20 bytes) before TLS; Streams how many were opened.
	Received float64 `json:"received_mb"`
	Streams  int64   `json:"streams"`
	// CPU is the processor time of the plane in seconds, PlanePeak its largest resident memory so far.
	CPU       float64 `json:"plane_cpu_s"`
	PlanePeak float64 `json:"plane_peak_rss_mb"`
}

// ScaleRate is how changes at a steady rate fare.
type ScaleRate struct {
	Rate int `json:"changes_per_s"`
	// Reached is the rate at which the API took them.
	Reached float64 `json:"changes_reached_per_s"`
	// Revisions is how many were published for them: changes that come close together share one.
	Revisions uint64 `json:"revisions"`
	// Behind is how long after the API's last answer the last machine held the last of them.
	Behind float64 `json:"behind_s"`
	// CPU is the plane's processor time for a second of this.
	CPU float64 `json:"plane_cpu_per_s"`
	// Received is what all machines were sent, in MB a second.
	Received float64 `json:"received_mb_per_s"`
}

const (
	// scaleLimit is how long a thing may take before a measurement is given up.
	scaleLimit = 15 * time.Minute
	// scaleQuiet is how long no new revision comes when all changes were published.
	scaleQuiet = 3 * time.Second
	// scaleAddresses of the machine with the fleet: a plane takes a bounded number of handshakes of one.
	scaleAddresses = 200
)

type scaleBench struct {
	*routesBench
	o      ScaleOptions
	fleet  *fleet.Fleet
	result ScaleResult
}

// Scale measures one plane.
func Scale(ctx context.Context, o ScaleOptions) (r ScaleResult, err error) {
	o.Machines, o.Routes, o.Changes = orDefault(o.Machines, 1_000), orDefault(o.Routes, 20_000), orDefault(o.Changes, 10)
	if len(o.Rates) == 0 {
		o.Rates = []int{10, 50, 200}
	}
	if o.Duration == 0 {
		o.Duration = 20 * time.Second
	}
	l, err := lab.Up(ctx, lab.Topology{Name: "bench-scale", Machines: []lab.MachineSpec{
		{Name: "plane", Role: lab.RolePlane}, {Name: "fleet", Role: lab.RoleEdge, Addresses: scaleAddresses}, {Name: "os1", Role: lab.RoleBackends, Addresses: 2},
	}}, o.Lab)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, l.Down(context.WithoutCancel(ctx))) }()
	b := &scaleBench{o: o, result: ScaleResult{Machines: o.Machines, Routes: o.Routes}}
	b.routesBench = &routesBench{
		RoutesOptions: RoutesOptions{NetworkOptions: o.NetworkOptions}, row: RoutesRow{Routes: o.Routes}, machine: l.Machine("plane"), edge: l.Machine("fleet"), backends: l.Machine("os1"),
		Rig: &rig.Rig{Lab: l, Binary: o.Binary, Kubectl: o.Kubectl, Now: o.Now},
	}
	ctx, cancel := context.WithTimeout(ctx, 4*scaleLimit)
	defer cancel()
	for _, step := range []func(context.Context) error{b.begin, b.join, b.start, b.changes, b.rates, b.kill} {
		if err := step(ctx); err != nil {
			return b.result, err
		}
	}
	return b.result, nil
}

// begin starts the plane and writes the routes.
func (b *scaleBench) begin(ctx context.Context) (err error) {
	b.progress("%d routes: write", b.o.Routes)
	if b.plane, err = b.StartPlane(ctx, b.machine, rig.PlaneOptions{}); err != nil {
		return err
	}
	if b.api, err = client(b.plane); err != nil {
		return err
	}
	manifest := gatewayClass + "---\n" + gatewayManifest("edge")
	for i, a := range b.backends.Addrs4() {
		manifest += "---\n" + serviceManifest(appName(i), a)
	}
	if _, err := b.plane.Apply(ctx, manifest); err != nil {
		return err
	}
	began := b.Now()
	if err := inParallel(ctx, routeWriters, b.o.Routes, func(ctx context.Context, i int) error {
		_, err := b.api.Resource(httpRoutes).Namespace("default").Create(ctx, routeObject(i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("write a route: %w", err)
	}
	b.result.Write = seconds(b.Now().Sub(began))
	b.result.PlaneAlone, err = settled(ctx, b.Now, b.plane.Process.Pid().ID)
	return err
}

func (b *scaleBench) join(ctx context.Context) error {
	b.progress("%d machines: join", b.o.Machines)
	config, err := clientcmd.BuildConfigFromFlags("", b.plane.Kubeconfig())
	if err != nil {
		return err
	}
	config.Dial, config.QPS = b.plane.Machine.Dial, -1
	api, err := kube.New(config, kube.Options{})
	if err != nil {
		return err
	}
	b.fleet = fleet.New(fleet.Options{
		Machines: b.o.Machines, Planes: []string{b.plane.Endpoint()}, Now: b.Now,
		Token: func(ctx context.Context, machine string) (string, error) {
			return planes.CreateToken(ctx, api, planes.TokenRequest{Machine: machine, Now: b.Now()})
		},
		Dial: func(ctx context.Context, machine int, address string) (net.Conn, error) {
			addresses := b.edge.Addrs4()
			return b.edge.DialFrom(ctx, "tcp4", addresses[machine%len(addresses)], address, func(netip.AddrPort) {})
		},
	})
	began := b.Now()
	err = b.fleet.Join(ctx)
	b.result.Join = seconds(b.Now().Sub(began))
	return err
}

// start connects all machines, and all of them again.
func (b *scaleBench) start(ctx context.Context) (err error) {
	b.progress("%d machines: connect with an empty state", b.o.Machines)
	if b.result.First, err = b.connected(ctx, func() error { b.fleet.Start(ctx, false); return nil }); err != nil {
		return err
	}
	// Statuses are written at a bounded rate; the rest is measured when that is over.
	if err := b.awaitStatus(ctx); err != nil {
		return err
	}
	b.result.Status = b.row.Status
	b.progress("%d machines: restart with their stored state", b.o.Machines)
	if _, err := b.quiet(ctx); err != nil {
		return err
	}
	b.fleet.Stop()
	b.result.Again, err = b.connected(ctx, func() error { b.fleet.Start(ctx, true); return nil })
	return err
}

// connected measures from begin until all machines hold what there is.
func (b *scaleBench) connected(ctx context.Context, begin func() error) (s ScaleStart, err error) {
	ctx, cancel := context.WithTimeout(ctx, scaleLimit)
	defer cancel()
	pid := b.plane.Process.Pid().ID
	used, err := processorTime(pid)
	if err != nil {
		return s, err
	}
	received, streams, began := b.fleet.Received(), b.fleet.Streams(), b.Now()
	if err := begin(); err != nil {
		return s, err
	}
	if now := b.plane.Process.Pid().ID; now != pid {
		pid, used = now, 0 // it was started again
	}
	at, err := b.fleet.AwaitSince(ctx, b.o.Machines, delta.Revision{Epoch: 1}, began)
	if err != nil {
		return s, err
	}
	took := make([]float64, len(at))
	for i, t := range at {
		took[i] = seconds(t.Sub(began))
	}
	s = ScaleStart{
		Half: percentile(took, 0.5), Most: percentile(took, 0.99), All: percentile(took, 1),
		Received: megabytes(b.fleet.Received() - received), Streams: b.fleet.Streams() - streams,
	}
	now, err := processorTime(pid)
	if err != nil {
		return s, err
	}
	s.CPU = seconds(now - used)
	s.PlanePeak, err = statusMB(pid, "VmHWM:")
	return s, err
}

// changes changes one route again and again.
func (b *scaleBench) changes(ctx context.Context) error {
	b.progress("one route: change %d times", b.o.Changes)
	var half, most, all []float64
	for i := range b.o.Changes {
		if _, err := b.quiet(ctx); err != nil {
			return err
		}
		before := b.fleet.At()
		if err := b.patch(ctx, 1, i+1); err != nil {
			return err
		}
		answered := b.Now()
		limited, cancel := context.WithTimeout(ctx, scaleLimit)
		at, err := b.fleet.Await(limited, b.o.Machines, delta.Revision{Epoch: before.Epoch, Number: before.Number + 1})
		cancel()
		if err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		took := make([]float64, len(at))
		for i, t := range at {
			took[i] = millis(t.Sub(answered))
		}
		half, most, all = append(half, percentile(took, 0.5)), append(most, percentile(took, 0.99)), append(all, percentile(took, 1))
	}
	b.result.ChangeHalf, b.result.ChangeMost = percentile(half, 0.5), percentile(most, 0.5)
	b.result.ChangeAll, b.result.ChangeMax = percentile(all, 0.5), percentile(all, 1)
	return nil
}

// patch sends a route to one of the services.
func (b *scaleBench) patch(ctx context.Context, route, to int) error {
	patch := fmt.Sprintf(`{"spec":{"rules":[{"backendRefs":[{"name":%q,"port":80}]}]}}`, appName(to%2))
	if _, err := b.api.Resource(httpRoutes).Namespace("default").Patch(ctx, routeName(route), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("change a route: %w", err)
	}
	return nil
}

// quiet waits until all machines are connected and none has come to hold anything new for a while.
// It returns when the last one did.
func (b *scaleBench) quiet(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, scaleLimit)
	defer cancel()
	for {
		last, all := b.fleet.Last()
		if all && b.Now().Sub(last) >= scaleQuiet {
			return last, nil
		}
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("wait for the machines to be quiet (all connected: %t): %w", all, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// rates changes different routes at steady rates.
func (b *scaleBench) rates(ctx context.Context) error {
	turn := 0
	for _, rate := range b.o.Rates {
		b.progress("%d changes a second for %s", rate, b.o.Duration)
		if _, err := b.quiet(ctx); err != nil {
			return err
		}
		turn++
		pid := b.plane.Process.Pid().ID
		used, err := processorTime(pid)
		if err != nil {
			return err
		}
		n := int(float64(rate) * b.o.Duration.Seconds())
		before, received, began := b.fleet.At(), b.fleet.Received(), b.Now()
		if err := inParallel(ctx, routeWriters, n, func(ctx context.Context, i int) error {
			due := began.Add(time.Duration(float64(i) / float64(rate) * float64(time.Second)))
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(due.Sub(b.Now())):
			}
			return b.patch(ctx, i%b.o.Routes, turn+i/b.o.Routes)
		}); err != nil {
			return err
		}
		answered := b.Now()
		last, err := b.quiet(ctx)
		if err != nil {
			return err
		}
		now, err := processorTime(pid)
		if err != nil {
			return err
		}
		took := max(last.Sub(began), answered.Sub(began)).Seconds()
		b.result.Rates = append(b.result.Rates, ScaleRate{
			Rate: rate, Reached: math.Round(float64(n) / answered.Sub(began).Seconds()), Revisions: b.fleet.At().Number - before.Number,
			Behind: max(0, seconds(last.Sub(answered))), CPU: math.Round((now-used).Seconds()/took*100) / 100,
			Received: math.Round(megabytes(b.fleet.Received()-received)/took*10) / 10,
		})
	}
	return nil
}

// kill kills the plane and starts it again.
func (b *scaleBench) kill(ctx context.Context) (err error) {
	b.progress("kill the plane and start it again")
	if b.result.Killed, err = b.connected(ctx, func() error {
		b.plane.Process.Kill9()
		return b.plane.Start(ctx)
	}); err != nil {
		return err
	}
	b.result.Plane, err = settled(ctx, b.Now, b.plane.Process.Pid().ID)
	b.fleet.Stop()
	return err
}

func megabytes(n int64) float64 { return math.Round(float64(n)/(1<<20)*10) / 10 }

// processorTime returns what a process has used, by proc_pid_stat(5): in ticks of 10 ms.
func processorTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	// Behind the name, which may hold anything, the state is field 3, and utime and stime are 14 and 15.
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the processor time of process %d: it has none", pid)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"fairlead.dev/lab/load"
	"fairlead.dev/lab/rig"
)

// wrk asks as fast as it can, and says how many requests a second that is.
func (p *peerSite) wrk(ctx context.Context, o PeersOptions, url, kind string) (float64, error) {
	argv := []string{p.taskset, "-c", "0", p.peerPrograms.wrk, "-t1", "-c" + strconv.Itoa(o.Connections), fmt.Sprintf("-d%.0fs", o.Duration.Seconds())}
	if kind == closePeers {
		argv = append(argv, "-H", "Connection: close")
	}
	// The first requests wait until everything listens.
	if err := p.Await(ctx, url+" to answer", func(ctx context.Context) error {
		if p.peer != nil && !p.peer.Running() {
			log, _ := os.ReadFile(p.peer.Log())
			return rig.Fatal(fmt.Errorf("the load balancer has ended: %.500s", log))
		}
		out, err := p.client.Command(ctx, p.curl, "-sS", "-o", "/dev/null", "-m", "2", url).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}); err != nil {
		return 0, err
	}
	out, err := p.client.Command(ctx, append(argv, url)...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w: %s", err, out)
	}
	return readWrk(string(out))
}

var (
	wrkRate   = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)
	wrkErrors = regexp.MustCompile(`Socket errors: .*|Non-2xx.*`)
	// Sockets that were open when wrk ended count as read errors of closed connections.
	wrkEnded = regexp.MustCompile(`connect 0, read \d+, write 0, timeout 0$`)
)

// readWrk reads the requests a second of what wrk prints.
func readWrk(out string) (float64, error) {
	for _, bad := range wrkErrors.FindAllString(out, -1) {
		if !wrkEnded.MatchString(bad) {
			return 0, fmt.Errorf("wrk: %s", bad)
		}
	}
	rate := wrkRate.FindStringSubmatch(out)
	if rate == nil {
		return 0, fmt.Errorf("the output of wrk has no requests: %s", out)
	}
	return strconv.ParseFloat(rate[1], 64)
}

// spent is what processors have done so far.
type spent struct {
	host               time.Duration
	balancer, backends usage
	softirqs           time.Duration // that came while this process ran
}

func (s spent) since(before spent) spent {
	return spent{s.host - before.host, s.balancer.since(before.balancer), s.backends.since(before.backends), s.softirqs - before.softirqs}
}

func (p *peerSite) read() (s spent, err error) {
	if s.host, err = busy(); err != nil {
		return s, err
	}
	if s.softirqs, err = p.softirqs.during(os.Getpid()); err != nil {
		return s, err
	}
	if s.balancer, err = p.balancer.read(p.softirqs); err != nil {
		return s, err
	}
	for _, m := range p.backends {
		u, err := m.read(p.softirqs)
		if err != nil {
			return s, err
		}
		s.backends.kernel += u.kernel
		s.backends.processes += u.processes
	}
	return s, nil
}

// measure sends requests at a fixed rate and reads what the machines do meanwhile.
func (p *peerSite) measure(ctx context.Context, o PeersOptions, to string, row *PeerRow) error {
	config := load.Config{Address: to, Dial: p.client.Dial, Rate: o.KeptRate, Concurrency: o.Connections, Now: o.Now}
	if row.Kind == closePeers {
		config.Rate, config.NewConnections, config.Concurrency = o.CloseRate, true, 8*o.Connections
	}
	config.Duration = o.Duration / 4 // to warm up
	if _, err := load.Do(ctx, config); err != nil {
		return err
	}
	config.Duration = o.Duration
	before, err := p.read()
	if err != nil {
		return err
	}
	report, err := load.Do(ctx, config)
	if err != nil {
		return err
	}
	after, err := p.read()
	if err != nil {
		return err
	}
	if report.Failed > 0 || report.Rate() < 0.98*config.Rate {
		return fmt.Errorf("%s, %s, at %.0f requests a second: %s", row.Name, row.Kind, config.Rate, report)
	}
	// Else the numbers of processes are not those that the kernel's programs see.
	if after.softirqs == before.softirqs {
		return errors.New("no softirq came while requests were sent")
	}
	row.fixed(report, after.since(before))
	return row.sound()
}

// fixed fills in what a load at a fixed rate has shown.
func (r *PeerRow) fixed(report load.Report, s spent) {
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(report.OK) }
	r.Rate = report.Rate()
	r.Kernel, r.Processes, r.Packets = each(s.balancer.kernel), each(s.balancer.processes), float64(s.balancer.packets)/float64(report.OK)
	r.LBCPU, r.Backends, r.CPU = r.Kernel+r.Processes, each(s.backends.kernel+s.backends.processes), each(s.host)
	ms := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
	l := report.Latency
	r.P50, r.P90, r.P99, r.Max = ms(l.P50), ms(l.P90), ms(l.P99), ms(l.Max)
}

// sound says whether the machine that is measured is the one that the packets pass: if
// none do, it has nothing to do, else it has.
func (r *PeerRow) sound() error {
	passed, worked := r.Packets >= 1, r.Kernel > 0.1
	if r.Name == direct {
		passed, worked = r.Packets < 0.1, r.LBCPU < 0.5
	}
	if !passed || !worked {
		return fmt.Errorf("%s, %s: %.2f packets a request arrived at the load balancer, whose kernel took %.2f us: that is not the load balancer's own work", r.Name, r.Kind, r.Packets, r.Kernel)
	}
	return nil
}

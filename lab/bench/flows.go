package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/load"
)

const (
	// newRate is how many new connections a second ask the VIP one thing each.
	newRate = 200
	// keptConnections ask the VIP again and again, each of them every keptEvery.
	keptConnections = 60
	keptEvery       = 50 * time.Millisecond
	// patience is when a client gives up: a connection that has no answer by then has
	// failed, or is broken.
	patience = time.Second
)

// loss is one connection that failed or broke.
type loss struct {
	began, ended time.Time // connecting, or the request that had no answer
	kind         load.Kind
}

// flows are the clients of a VIP: an open loop of new connections, and kept ones.
type flows struct {
	client  *lab.Machine
	address string
	run     *load.Run
	cancel  context.CancelFunc
	kept    sync.WaitGroup

	mu     sync.Mutex
	failed []loss                     // of the new connections
	broken []loss                     // of the kept ones
	heard  [keptConnections]time.Time // when the last request began that was answered
	anew   int                        // raised when kept connections are to be made anew
}

// startFlows begins to send; stop ends it.
func startFlows(ctx context.Context, client *lab.Machine, address string, now func() time.Time) (*flows, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &flows{client: client, address: address, cancel: cancel}
	var err error
	f.run, err = load.Start(ctx, load.Config{
		Address: address, Host: vipHost, Dial: client.Dial, Rate: newRate, NewConnections: true,
		Concurrency: 2 * newRate, Timeout: patience, Now: now,
		OnResult: func(r load.Result) {
			if r.Kind != "" && ctx.Err() == nil {
				f.note(&f.failed, loss{r.Start, r.Start.Add(r.Latency), r.Kind})
			}
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	for i := range keptConnections {
		f.kept.Go(func() {
			first := time.Duration(i) * keptEvery / keptConnections
			select {
			case <-ctx.Done():
			case <-time.After(first):
				f.keep(ctx, i, now)
			}
		})
	}
	return f, nil
}

func (f *flows) stop() {
	f.cancel()
	f.run.Stop()
	f.kept.Wait()
}

func (f *flows) note(list *[]loss, l loss) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*list = append(*list, l)
}

// renew has every kept connection closed and made anew. After a round in which an edge went
// nearly all of them are at the other one, which is the next to go.
func (f *flows) renew() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.anew++
}

// whole waits until every kept connection is answered from now on.
func (f *flows) whole(ctx context.Context, now func() time.Time) error {
	began := now()
	for {
		answered := 0
		f.mu.Lock()
		for _, at := range f.heard {
			if at.After(began) {
				answered++
			}
		}
		f.mu.Unlock()
		if answered == keptConnections {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the kept connections, %d of %d are answered: %w", answered, keptConnections, ctx.Err())
		case <-time.After(keptEvery):
		}
	}
}

// losses are those of a time.
type losses struct {
	failed   map[load.Kind]int // new connections that no edge took, or answered in time
	inFlight int               // new ones that an edge had taken, and that broke before the answer
	broken   map[load.Kind]int // kept ones
	last     time.Time         // when the last of the failed ones began
}

// between returns what ended badly after from and began before to.
func (f *flows) between(from, to time.Time) losses {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := func(l loss) bool { return !l.ended.Before(from) && !l.began.After(to) }
	sum := losses{failed: map[load.Kind]int{}, broken: map[load.Kind]int{}}
	for _, l := range f.failed {
		switch {
		case !in(l):
		case l.kind == load.KindReset:
			sum.inFlight++
		default:
			sum.failed[l.kind]++
			if l.began.After(sum.last) {
				sum.last = l.began
			}
		}
	}
	for _, l := range f.broken {
		if in(l) {
			sum.broken[l.kind]++
		}
	}
	return sum
}

// keep holds one connection, and makes another one when it breaks or is closed.
func (f *flows) keep(ctx context.Context, own int, now func() time.Time) {
	tick := time.NewTicker(keptEvery)
	defer tick.Stop()
	var conn net.Conn
	var reader *bufio.Reader
	answered, made := false, 0
	lose := func() {
		if conn != nil {
			_ = conn.Close()
			conn = nil
		}
		answered = false
	}
	defer lose()
	for {
		f.mu.Lock()
		anew := f.anew
		f.mu.Unlock()
		if anew != made {
			lose()
		}
		if conn == nil {
			made = anew
			dialing, cancel := context.WithTimeout(ctx, patience)
			dialed, err := f.client.Dial(dialing, "tcp", f.address)
			cancel()
			if err == nil {
				conn, reader = dialed, bufio.NewReader(dialed)
			}
		}
		if conn != nil {
			began := now()
			closes, err := exchange(conn, reader, began.Add(patience))
			switch {
			case err != nil && answered && ctx.Err() == nil:
				kind := load.KindReset
				if errors.Is(err, os.ErrDeadlineExceeded) {
					kind = load.KindTimeout
				}
				f.note(&f.broken, loss{began, now(), kind})
				lose()
			case err != nil:
				lose()
			default:
				answered = true
				f.mu.Lock()
				f.heard[own] = began
				f.mu.Unlock()
				if closes {
					lose()
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// exchange asks once on a connection. closes says that the server ends it with its
// answer, which is no loss.
func exchange(conn net.Conn, reader *bufio.Reader, deadline time.Time) (closes bool, err error) {
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+vipHost+"\r\n\r\n"); err != nil {
		return false, err
	}
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return false, err
	}
	if answer.StatusCode != http.StatusOK {
		return false, fmt.Errorf("the answer is %s", answer.Status)
	}
	return answer.Close, nil
}

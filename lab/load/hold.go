package load

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// HoldConfig says which connections to hold open. Address, Connections and Every are
// required.
type HoldConfig struct {
	// Address is "ip:port" of the server; Dial and Host as in Config.
	Address string
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Host    string
	// Connections to hold, each of which asks once in Every.
	Connections int
	Every       time.Duration
	// Timeout bounds one answer; default 10 s. A connection without one is broken.
	Timeout time.Duration
	Now     func() time.Time
}

// Break is a held connection that ended badly.
type Break struct {
	At   time.Time // when the request began that had no answer
	Kind Kind
	// Name of the backend that had answered before; empty if none had.
	Name string
}

// Held are connections that are held open. A broken one is made anew.
type Held struct {
	config HoldConfig
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	heard  []time.Time // when the last request began that was answered
	names  []string    // who answered it
	broken []Break
	closed int         // in good order, by the server
	failed int         // attempts to connect that came to nothing
	other  []time.Time // when requests began that were answered, but not well
}

// Hold opens the connections, one after the other, and returns when all have been
// answered once.
func Hold(ctx context.Context, c HoldConfig) (*Held, error) {
	if c.Address == "" || c.Connections <= 0 || c.Every <= 0 {
		return nil, errors.New("hold connections: address, number and interval are required")
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Host == "" {
		c.Host = c.Address
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h := &Held{config: c, cancel: cancel, heard: make([]time.Time, c.Connections), names: make([]string, c.Connections)}
	began := c.Now()
	// Spread over one interval, so that requests are even afterwards.
	for i := range c.Connections {
		h.all.Go(func() { h.keep(running, i, c.Every*time.Duration(i)/time.Duration(c.Connections)) })
	}
	if err := h.Whole(ctx, began); err != nil {
		h.Stop()
		return nil, err
	}
	return h, nil
}

// Stop closes the connections.
func (h *Held) Stop() {
	h.cancel()
	h.all.Wait()
}

// Whole waits until every connection was answered a request that began after a time.
func (h *Held) Whole(ctx context.Context, after time.Time) error {
	for {
		answered := 0
		h.mu.Lock()
		for _, at := range h.heard {
			if at.After(after) {
				answered++
			}
		}
		h.mu.Unlock()
		if answered == h.config.Connections {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d connections to %s, %d are answered: %w", h.config.Connections, h.config.Address, answered, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Broken are the connections that broke since a time, in the order in which that was
// noticed.
func (h *Held) Broken(since time.Time) []Break {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []Break
	for _, b := range h.broken {
		if b.At.After(since) {
			list = append(list, b)
		}
	}
	return list
}

// Unserved is how many requests that began since a time were answered with an error: the
// connection lives, but who serves behind it does not.
func (h *Held) Unserved(since time.Time) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, at := range h.other {
		if at.After(since) {
			n++
		}
	}
	return n
}

// Names counts the connections by who answers them.
func (h *Held) Names() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := map[string]int{}
	for _, name := range h.names {
		count[name]++
	}
	return count
}

// Closed is how many connections the server has ended in good order.
func (h *Held) Closed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}

// keep holds one connection.
func (h *Held) keep(ctx context.Context, own int, first time.Duration) {
	var conn net.Conn
	var reader *bufio.Reader
	var name string
	lose := func() {
		if conn != nil {
			_ = conn.Close()
			conn, name = nil, ""
		}
	}
	defer lose()
	timer := time.NewTimer(first)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(h.config.Every)
		}
		if conn == nil {
			dialing, cancel := context.WithTimeout(ctx, h.config.Timeout)
			made, err := h.config.Dial(dialing, "tcp", h.config.Address)
			cancel()
			if err != nil {
				h.count(&h.failed)
				timer.Reset(h.config.Every / 10)
				continue
			}
			conn, reader = made, bufio.NewReaderSize(made, 512)
		}
		began := h.config.Now()
		answered, closes, err := exchange(ctx, conn, reader, h.config.Host, began.Add(h.config.Timeout))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if name != "" {
				h.lost(Break{At: began, Kind: breakKind(err), Name: name})
			}
			lose()
			timer.Reset(h.config.Every / 10)
			continue
		}
		h.mu.Lock()
		if answered != "" {
			name = answered
			h.heard[own], h.names[own] = began, name
		} else {
			h.other = append(h.other, began)
			timer.Reset(h.config.Every / 10)
		}
		h.mu.Unlock()
		if closes {
			h.count(&h.closed)
			lose()
		}
	}
}

func (h *Held) lost(b Break) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, b)
}

func (h *Held) count(n *int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*n++
}

func breakKind(err error) Kind {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return KindTimeout
	}
	return KindReset
}

// exchange asks once on a connection and says who answered, and whom if it tells, "" if it is an error. closes says that the server
// ends it with its answer, which is no loss.
func exchange(ctx context.Context, conn net.Conn, reader *bufio.Reader, host string, deadline time.Time) (name string, closes bool, err error) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(deadline)
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
		return "", false, err
	}
	answer, err := http.ReadResponse(reader, nil)
	if err != nil {
		return "", false, err
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxBody))
	_ = answer.Body.Close()
	if err != nil {
		return "", false, err
	}
	if answer.StatusCode != http.StatusOK {
		return "", answer.Close, nil
	}
	name = cmp.Or(answer.Header.Get("X-Backend"), string(body), "nobody")
	if peer := answer.Header.Get("X-Peer"); peer != "" {
		name += " " + peer
	}
	return name, answer.Close, nil
}

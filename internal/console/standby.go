package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

const (
	// relayed marks a question that comes from a standby: it is not passed on again.
	relayed = "Fairlead-Relayed"
	// relayTime is how long the leader may take: a question may wait for others there, and then for the loop.
	relayTime = 28 * time.Second
)

// Standby is why a plane does not answer: it stands by, and only the one that leads
// knows what machines do.
type Standby struct {
	Leader  string // its identity
	Agents  string // host:port of its endpoint for agents
	Console string // host:port; empty when it did not say
	Read    string // host:port of its read API; empty when it did not say, or has none
	Why     string // it was not asked, or did not answer
}

// Error implements error.
func (s Standby) Error() string {
	text := "this plane stands by and does not know: ask the leader, " + s.Leader
	host, _, err := net.SplitHostPort(s.Agents)
	switch {
	case s.Console == "":
		text += ", at the machine of " + s.Agents
	case local(s.Console) && err == nil:
		text += ", on its machine " + host + ": its console is at " + s.Console + " there"
	default:
		text += ", whose console is at " + s.Console
	}
	if s.Why != "" {
		text += " (" + s.Why + ")"
	}
	return text
}

// local says that an address is reached on its own machine only.
func local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// led answers by the handler when the plane leads, and has the leader answer when it does
// not: if its console can be reached from here, else by saying where it is.
func led(c Config, h http.HandlerFunc) http.HandlerFunc {
	if c.Standby == nil {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) {
		err := c.Standby()
		var s Standby
		switch {
		case err == nil:
			h(w, r)
			return
		case !errors.As(err, &s):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if s.Read != "" && c.Relay != nil && r.Header.Get(relayed) == "" {
			if err = relay(w, r, c.Relay, s.Read); err == nil {
				return
			}
			s.Why = "it does not answer this plane: " + err.Error()
		}
		http.Error(w, s.Error(), http.StatusMisdirectedRequest)
	}
}

// relay has the read API of another plane answer. After an error nothing is written.
func relay(w http.ResponseWriter, r *http.Request, do func(*http.Request) (*http.Response, error), to string) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+to+r.URL.RequestURI(), nil)
	if err != nil {
		return err
	}
	request.Header.Set(relayed, "1")
	if last := r.Header.Get(lastEvent); last != "" {
		request.Header.Set(lastEvent, last)
	}
	limit := time.AfterFunc(relayTime, cancel)
	defer limit.Stop()
	response, err := do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.Header.Get("Content-Type") == eventStream {
		limit.Stop()
		passOn(w, response.Body)
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, v1.MaxAnswer))
	if err != nil {
		return fmt.Errorf("read its answer: %w", err)
	}
	for _, name := range []string{"Content-Type", "Retry-After", "Www-Authenticate", v1.TotalHeader, v1.ContinueHeader} {
		if value := response.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	writeBody(w, body)
	return nil
}

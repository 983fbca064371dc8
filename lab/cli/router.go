package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"fairlead.dev/lab"
	"fairlead.dev/lab/report"
	"fairlead.dev/lab/router"
)

// shownRouter is a router as `-o json` prints it.
type shownRouter struct {
	Machine string      `json:"machine"`
	Kind    router.Kind `json:"kind"`
	// Routes are those in the machine's kernel.
	Routes   []router.Route   `json:"routes"`
	Sessions []router.Session `json:"sessions"`
	// Error is why one of the above is missing.
	Error string `json:"error,omitempty"`
}

// routers asks those of a lab. What cannot be had does not keep the rest from being
// shown.
func routers(ctx context.Context, s lab.State) []shownRouter {
	var all []shownRouter
	for _, m := range s.Machines {
		if !router.Recorded(m) {
			continue
		}
		shown := shownRouter{Machine: m.Name}
		if err := shown.ask(ctx, s); err != nil {
			shown.Error = err.Error()
		}
		all = append(all, shown)
	}
	return all
}

func (r *shownRouter) ask(ctx context.Context, s lab.State) error {
	l, err := lab.Open(s.Name, lab.Options{Dir: filepath.Dir(s.Dir())})
	if err != nil {
		return err
	}
	defer l.Close()
	m, ok := l.Lookup(r.Machine)
	if !ok {
		return fmt.Errorf("machine %s has gone", r.Machine)
	}
	opened, err := router.Open(m)
	if err != nil {
		return err
	}
	r.Kind = opened.Kind()
	var routesErr, sessionsErr error
	r.Routes, routesErr = opened.Table(ctx)
	r.Sessions, sessionsErr = opened.Sessions(ctx)
	return errors.Join(routesErr, sessionsErr)
}

// write prints the router's routes and sessions as tables.
func (r *shownRouter) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "  %s (%s)\n", r.Machine, r.Kind)
	errs := []error{err}
	if r.Error != "" {
		_, err := fmt.Fprintf(w, "    it does not answer: %s\n", r.Error)
		errs = append(errs, err)
	}
	routes := report.Table{Columns: []string{"ROUTE", "NEXT HOPS"}}
	for _, route := range r.Routes {
		hops := make([]string, 0, len(route.NextHops))
		for _, h := range route.NextHops {
			hops = append(hops, h.String())
		}
		routes.Add(route.Prefix, strings.Join(hops, " "))
	}
	sessions := report.Table{Columns: []string{"NEIGHBOUR", "AS", "STATE", "ROUTES", "BFD"}}
	for _, s := range r.Sessions {
		bfd := s.BFD
		if bfd == "" {
			bfd = "-"
		}
		sessions.Add(s.Neighbor, s.ASN, s.State, s.Received, bfd)
	}
	for _, t := range []*report.Table{&routes, &sessions} {
		if len(t.Rows) == 0 {
			t.Rows = [][]string{{"none yet"}}
		}
		errs = append(errs, t.Write(w, "    "))
	}
	return errors.Join(errs...)
}

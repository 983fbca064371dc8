package proxy

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

// Requests are the figures of the routes that have taken requests, sorted.
func (s *Supervisor) Requests(ctx context.Context) ([]model.RequestFigures, error) {
	body, err := s.admin.ask(ctx, http.MethodGet, "/stats?usedonly&filter=^"+xds.RequestStats+"[.]requests[.]")
	if err != nil {
		return nil, err
	}
	return readRequests(string(body)), nil
}

func readRequests(stats string) []model.RequestFigures {
	routes := map[model.RequestFigures]*model.RequestFigures{} // by what has no requests
	for line := range strings.Lines(stats) {
		of, class, n, ok := readRequest(strings.TrimSpace(line))
		if !ok {
			continue
		}
		if routes[of] == nil {
			routes[of] = new(of)
		}
		routes[of].Classes[class] += n
	}
	list := make([]model.RequestFigures, 0, len(routes))
	for _, r := range routes {
		list = append(list, *r)
	}
	slices.SortFunc(list, model.RequestFigures.Compare)
	return list
}

// readRequest reads one counter.
func readRequest(line string) (of model.RequestFigures, class model.StatusClass, n uint64, ok bool) {
	name, value, _ := strings.Cut(line, ": ")
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || !utf8.ValidString(name) || len(name) > 4*maxCluster { // names go into reports
		return of, 0, 0, false
	}
	_, rest, is := strings.Cut(name, "."+xds.StatListener+".")
	listener, rest, isHost := strings.Cut(rest, "."+xds.StatHost+".")
	host, rest, isRoute := strings.Cut(rest, "."+xds.StatRoute+".")
	route, word, isClass := strings.Cut(rest, "."+xds.StatClass+".")
	class, known := classes[word]
	if !is || !isHost || !isRoute || !isClass || !known {
		return of, 0, 0, false
	}
	return model.RequestFigures{Listener: model.ListenerID(listener), Host: host, Route: route}, class, n, true
}

// classes are the classes by their names.
var classes = func() map[string]model.StatusClass {
	m := map[string]model.StatusClass{}
	for c := range model.StatusClass(model.StatusClasses) {
		m[c.String()] = c
	}
	return m
}()

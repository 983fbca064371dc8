package proxy

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/xds"
)

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
	route, rest, isGroup := strings.Cut(rest, "."+xds.StatGroup+".")
	group, word, isClass := strings.Cut(rest, "."+xds.StatClass+".")
	class, known := classes[word]
	if !is || !isHost || !isRoute || !isGroup || !isClass || !known {
		return of, 0, 0, false
	}
	return model.RequestFigures{Listener: model.ListenerID(listener), Host: host, Route: route, Group: model.GroupID(group)}, class, n, true
}

// classes are the classes by their names.
var classes = func() map[string]model.StatusClass {
	m := map[string]model.StatusClass{}
	for c := range model.StatusClass(model.StatusClasses) {
		m[c.String()] = c
	}
	return m
}()

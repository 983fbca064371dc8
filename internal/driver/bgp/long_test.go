package bgp

import (
	"fmt"
	"strings"

	"fairlead.dev/internal/model"
)

// longCommunities are large communities of 12 octets each, too many for a message of 4,096 octets, so many a line.
func longCommunities(perLine int, format, separator string) []string {
	const count = 400
	var lines []string
	for first := 0; first < count; first += perLine {
		var line []string
		for i := range perLine {
			line = append(line, fmt.Sprintf(format, first+i))
		}
		lines = append(lines, strings.Join(line, separator))
	}
	return lines
}

// A router's OPEN may have wide lengths (RFC 9072), and its UPDATEs more than 4,096 octets (RFC 8654): one that keeps
// to less could not send these routes at all. They are counted as others are, and dropped.
func longMessages(s *site) {
	n, p := s.neighbour(), s.peer()
	n.long, n.exports = true, 4
	s.start(s.T, s.box, n)
	c := startChild(s.T, s.edge, speaking(p, route4))
	if x := c.until("four prefixes ignored", func(x model.Session) bool { return x.Received == 4 }); x.Reason != model.SessionUnwanted {
		s.Errorf("the session is %+v, want reason UnwantedPrefixes", x)
	}
	s.knows(route4, s.edge.Addr4().String())
	c.set(speaking(p, route4, otherRoute4))
	s.knows(otherRoute4, s.edge.Addr4().String())
	if x := c.established(); x.Received != 4 || x.Flaps > 0 {
		s.Errorf("the session is %+v, want it established all the time", x)
	}
}

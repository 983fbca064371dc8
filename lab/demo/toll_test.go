package demo

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// What is lost is told apart by what became of the connection's way.
func TestToll(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	on := func(edges ...string) *conn { return &conn{edges: edges} }
	given := func(s sample, owner string) sample {
		s.conn.owners = []string{owner}
		return s
	}
	refused := func(due, dialed, end int, edges ...string) sample {
		return sample{start: at(due), end: at(end), failed: true, refused: true, conn: &conn{edges: edges, dialed: at(dialed)}}
	}
	for _, c := range []struct {
		name   string
		struck string
		sample sample
		want   toll
	}{
		{"answered on the way as it was", "edge-3", sample{edge: "edge-1", conn: on("edge-1")}, toll{kept: 1}},
		{"lost on the way as it was", "edge-3", sample{end: at(150), failed: true, conn: on("edge-1")}, toll{stayed: 1}},
		{"lost on the struck edge", "edge-3", sample{end: at(150), failed: true, conn: on("edge-3")}, toll{struck: 1}},
		{"lost on the struck edge, and noticed later", "edge-3", sample{end: at(900), failed: true, conn: on("edge-3")}, toll{struck: 1}},
		{"lost on an edge before it was struck", "edge-3", sample{end: at(50), failed: true, conn: on("edge-3")}, toll{stayed: 1}},
		{"lost on its way from the struck edge to another", "edge-3", sample{end: at(150), failed: true, conn: on("edge-3", "edge-1")}, toll{struck: 1}},
		{"answered before its edge was struck", "edge-3", sample{edge: "edge-3", conn: on("edge-3")}, toll{}},
		{"lost on a connection that was moved", "edge-3", sample{end: at(150), failed: true, conn: on("edge-2", "edge-1")}, toll{moved: 1}},
		{"answered on a connection that was moved later", "", sample{edge: "edge-2", conn: on("edge-2", "edge-1")}, toll{}},
		{"lost where nothing was struck", "", sample{failed: true, conn: on("edge-3")}, toll{stayed: 1}},
		{"refused by the struck edge", "edge-3", refused(150, 150, 150, "edge-3"), toll{struck: 1}},
		{"due before the kill, refused after it", "edge-3", refused(50, 150, 150, "edge-3"), toll{struck: 1}},
		{"begun before the kill, refused after it", "edge-3", refused(50, 50, 150, "edge-3"), toll{struck: 1}},
		{"refused by the struck edge, told when the router had followed", "edge-3", refused(150, 150, 250, "edge-3"), toll{struck: 1}},
		{"refused while the router followed", "edge-3", refused(150, 199, 250, "edge-3", "edge-1"), toll{struck: 1}},
		{"refused before the kill", "edge-3", refused(50, 50, 60, "edge-3"), toll{stayed: 1}},
		{"refused by another edge in the meantime", "edge-3", refused(150, 150, 150, "edge-1"), toll{stayed: 1}},
		{"due before the router followed, refused where it led then", "edge-3", refused(150, 250, 250, "edge-1"), toll{stayed: 1}},
		{"refused when the router led to the edge again", "edge-3", refused(250, 250, 250, "edge-3"), toll{stayed: 1}},
		{"refused, and its edge had given it to the struck one's proxy", "edge-3", given(refused(101, 101, 110, "edge-1"), "edge-3"), toll{struck: 1}},
		{"begun later, and given to the struck edge's proxy", "edge-3", given(refused(210, 210, 220, "edge-1"), "edge-3"), toll{stayed: 1}},
		{"refused by the proxy of an edge that was not struck", "edge-3", given(refused(150, 150, 160, "edge-1"), "edge-2"), toll{stayed: 1}},
		{"lost at the proxy of the struck edge", "edge-3", given(sample{end: at(150), failed: true, conn: on("edge-1")}, "edge-3"), toll{struck: 1}},
		{"lost at the proxy of the struck edge when that was back", "edge-3", given(sample{end: at(250), failed: true, conn: &conn{edges: []string{"edge-1"}, dialed: at(210)}}, "edge-3"), toll{stayed: 1}},
		{"lost at the proxy of an edge that was not struck", "edge-3", given(sample{end: at(150), failed: true, conn: on("edge-1")}, "edge-2"), toll{stayed: 1}},
		{"refused by two in a row", "edge-3", refused(150, 150, 150, "edge-2", "edge-1"), toll{stayed: 1}},
		{"refused where the router had no route", "edge-3", refused(150, 150, 150), toll{stayed: 1}},
		{"not even bound", "edge-3", sample{start: at(150), end: at(150), failed: true}, toll{stayed: 1}},
		{"refused where nothing was struck", "", refused(150, 150, 150, "edge-3"), toll{stayed: 1}},
	} {
		got := (&traffic{samples: []sample{c.sample}}).toll(c.struck, at(100), at(200))
		if got.struck != c.want.struck || got.moved != c.want.moved || got.stayed != c.want.stayed || got.kept != c.want.kept {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		toll toll
		want string
	}{
		{toll{struck: 9, moved: 9, kept: 1}, ""},
		{toll{stayed: 1, kept: 99}, "1 requests were lost on connections whose path did not change"},
		{toll{struck: 9}, "nothing was shown"},
	} {
		s := &Step{Figures: map[string]float64{}}
		s.judge(&stage{}, c.toll, "edge-3")
		if got := strings.Join(s.Wrong, "; "); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%+v: wrong is %q, want %q", c.toll, got, c.want)
		}
	}
}

// What should not have been lost is told of: when, on which way, and why.
func TestStory(t *testing.T) {
	t0 := time.Unix(1000, 0)
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	s := sample{
		flow: flow{vip: netip.MustParseAddr("203.0.113.80")}, start: at(-1), end: at(40), err: errors.New("reset"),
		conn: &conn{local: netip.MustParseAddrPort("10.78.1.1:4000"), edges: []string{"edge-1", "edge-2"}, owners: []string{"edge-2"}, dialed: at(12)},
	}
	if got, want := s.story(t0), "a request to 203.0.113.80 at -1.0 to +40.0 ms, from 10.78.1.1:4000, begun at +12.0 ms, led to edge-1 and edge-2, given to the proxy of edge-2: reset"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.conn = nil
	if got, want := s.story(t0), "a request to 203.0.113.80 at -1.0 to +40.0 ms, without a connection: reset"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestExchanges holds that what fails over IPv6 while the router exchanges its next hops is excused where
// edges pass nothing on, and nowhere else.
func TestExchanges(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		name  string
		alone bool
		vip   netip.Addr
		end   int
		want  toll
	}{
		{"a moment before it was known", true, six, 1900, toll{exchanged: 1}},
		{"a moment after", true, six, 2100, toll{exchanged: 1}},
		{"long before", true, six, 1000, toll{stayed: 1}},
		{"long after", true, six, 3000, toll{stayed: 1}},
		{"over IPv4, whose routes are exchanged whole", true, four, 1900, toll{stayed: 1}},
		{"by edges that pass packets on", false, six, 1900, toll{stayed: 1}},
	} {
		s := sample{start: at(500), end: at(c.end), failed: true, flow: flow{vip: c.vip}, conn: &conn{edges: []string{"edge-3"}}}
		tr := &traffic{alone: c.alone, samples: []sample{s}, tables: map[netip.Addr][]table{c.vip: {{at(0), nil}, {at(2000), nil}}}}
		if got := tr.toll("", at(400), at(2000)); got.exchanged != c.want.exchanged || got.stayed != c.want.stayed {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

package l2

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

const (
	// round is how often a machine says what it owns.
	round = 250 * time.Millisecond
	// silence makes an owner that is not heard lose its VIPs. An owner that has not
	// sent for as long does not answer for them.
	silence = 4 * round
	// Before a VIP is taken from an owner that did not hand it over, probes ask whether
	// anybody has it (RFC 5227, 2.1, and RFC 4862, 5.4, with shorter waits).
	probes   = 2
	probeGap = 100 * time.Millisecond
	// patience is how long a candidate waits for each better one to take a vacant VIP.
	patience = 2 * round
	// newcomer and maxNewcomer are what a candidate adds, for each candidate before it
	// in the list, to a VIP that it never saw owned: those may just be starting.
	newcomer    = time.Second
	maxNewcomer = 3 * time.Second
	// recheck is how soon a VIP that could not be taken is tried again.
	recheck = 5 * time.Second
	// restart is how long the VIPs of an owner are kept for it when it said that its
	// agent restarts.
	restart = 10 * time.Second
	// defence is how seldom an owner answers a foreign host that says it has the VIP
	// (RFC 5227, 2.4, DEFEND_INTERVAL).
	defence = 10 * time.Second
	// maxNames bounds what is remembered of stations that are heard no longer.
	maxNames = 1024
)

// announcements are when, after a taking, the owner says so to the whole segment.
func announcements() []time.Duration {
	return []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, time.Second}
}

// hardware is an Ethernet address.
type hardware [6]byte

func (h hardware) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", h[0], h[1], h[2], h[3], h[4], h[5])
}

// station is one machine on one segment. A machine with two interfaces on one segment
// is two stations there.
type station struct {
	machine string
	mac     hardware
}

// compare orders stations; it is the last resort when nothing else tells two apart.
func (s station) compare(o station) int {
	return cmp.Or(strings.Compare(s.machine, o.machine), bytes.Compare(s.mac[:], o.mac[:]))
}

// role is what a station says about a VIP.
type role uint8

const (
	idle    role = iota // has the candidacy, and cannot or may not own now
	standby             // would own
	owner               // owns
	paused              // owns; its agent restarts, and the VIP is to be kept for it
)

// entry is what a station says about one VIP in a heartbeat.
type entry struct {
	vip  netip.Addr
	role role
	term uint32 // the highest that it knows; an owner's is its own
}

// effects are what an election wants done, in this order.
type effects struct {
	drop     []netip.Addr // no longer owned
	take     []netip.Addr // owned from now on; undone by refuse
	probe    []netip.Addr // ask the segment who has it
	announce []netip.Addr // tell the segment that it is here
	beat     bool         // send a heartbeat now, not only when the round is over
}

func (f *effects) empty() bool {
	return !f.beat && len(f.drop)+len(f.take)+len(f.probe)+len(f.announce) == 0
}

// election decides which VIPs one station owns. It does no I/O and reads no clock:
// what happens and when is told to it, and what to do is asked from it. Times that it
// is told never go back.
type election struct {
	self     station
	contests map[netip.Addr]*contest
	names    map[hardware]string   // of the stations that were ever heard
	farewell map[netip.Addr]uint32 // terms of VIPs no longer claimed, for the next heartbeat
	quiet    time.Time             // until then it only listens
	wake     time.Time             // when decide must be called again
	fx       effects
}

// contest is the election of one VIP.
type contest struct {
	candidacy Candidacy
	rank      int // among the candidates; -1: it is none
	own       bool
	term      uint32 // of its own owning
	top       uint32 // the highest that was seen
	listen    time.Time
	vacant    time.Time // since when nobody owns it; zero when somebody does
	handed    bool      // the last owner gave it up, so nobody needs to be asked
	seen      bool      // it had an owner once
	others    map[station]*opinion

	probed    int       // probes sent
	probeNext time.Time // when the next is due, or the answers to the last are
	announced int       // announcements sent since it was taken
	taken     time.Time // start of these announcements
	defended  time.Time
	trouble   string // why it cannot be taken, or who else claims it
	retry     time.Time
}

type opinion struct {
	entry
	until time.Time // when it is void unless said again
}

func newElection(self station) *election {
	return &election{
		self: self, contests: map[netip.Addr]*contest{},
		names: map[hardware]string{}, farewell: map[netip.Addr]uint32{},
	}
}

// set replaces the candidacies. A candidacy that stays keeps its state.
func (e *election) set(now time.Time, candidacies []Candidacy) {
	wanted := map[netip.Addr]bool{}
	for _, candidacy := range candidacies {
		wanted[candidacy.VIP] = true
		c := e.contests[candidacy.VIP]
		if c == nil {
			c = &contest{listen: now.Add(silence), vacant: now, others: map[station]*opinion{}}
			e.contests[candidacy.VIP] = c
			delete(e.farewell, candidacy.VIP)
		}
		if c.candidacy.Ready != candidacy.Ready {
			e.fx.beat = true
		}
		c.candidacy, c.rank = candidacy, slices.Index(candidacy.Candidates, e.self.machine)
	}
	for vip, c := range e.contests {
		if wanted[vip] {
			continue
		}
		if c.own {
			e.fx.drop, e.fx.beat = append(e.fx.drop, vip), true
		}
		e.farewell[vip] = c.top
		delete(e.contests, vip)
	}
	e.decideAll(now)
}

// hear takes what another station says.
func (e *election) hear(now time.Time, from station, entries []entry) {
	if from == e.self {
		return // a loop in the network, or an interface that hears itself
	}
	if len(e.names) >= maxNames {
		clear(e.names) // somebody plays with addresses
	}
	e.names[from.mac] = from.machine
	for _, w := range entries {
		c := e.contests[w.vip]
		if c == nil {
			continue
		}
		o := c.others[from]
		if o == nil {
			o = &opinion{}
			c.others[from] = o
		}
		before := o.role
		o.entry, o.until = w, now.Add(silence)
		if w.role == paused {
			o.until = now.Add(restart)
		}
		c.top = max(c.top, w.term)
		if before >= owner && w.role < owner {
			c.gaveUp(now)
		}
		e.decide(now, w.vip, c)
	}
}

// gaveUp is called when an owner says that it is one no longer.
func (c *contest) gaveUp(now time.Time) {
	if c.own { // there were two: those who believed the other need to hear it
		c.announced, c.taken = 0, now
		return
	}
	if _, o := c.owner(now); o == nil {
		c.vacant, c.handed, c.seen = now, true, true
	}
}

// answered is called when a station that is not this machine's shows that it has the
// VIP: it answers a probe or announces the VIP.
func (e *election) answered(now time.Time, vip netip.Addr, by hardware) {
	c := e.contests[vip]
	if c == nil || by == e.self.mac {
		return
	}
	for s, o := range c.others {
		if s.mac == by && now.Before(o.until) && (o.role >= owner || c.own) {
			return // heartbeats decide between us
		}
	}
	who := "another host (" + by.String() + ")"
	if name := e.names[by]; name != "" {
		who = fmt.Sprintf("machine %s (%s), whose heartbeats (EtherType %#x) contradict this or do not arrive,", name, by, typeBeat)
	}
	switch {
	case c.own:
		if now.Sub(c.defended) < defence {
			return
		}
		c.defended, c.retry = now, now.Add(recheck)
		c.trouble = who + " answers for the address too; remove it there or choose another VIP"
		last := len(announcements()) - 1
		c.announced, c.taken = last, now.Add(-announcements()[last])
		e.decide(now, vip, c)
	case c.probed > 0:
		e.withhold(now, c, who+" answers for the address; remove it there or choose another VIP")
	}
}

// refuse undoes a taking that did not work.
func (e *election) refuse(now time.Time, vip netip.Addr, why string) {
	if c := e.contests[vip]; c != nil {
		c.own = false
		c.vacant = now
		e.withhold(now, c, why)
	}
}

func (e *election) withhold(now time.Time, c *contest, why string) {
	c.trouble, c.retry, c.probed = why, now.Add(recheck), 0
	e.fx.beat = true
	e.wakeAt(c.retry)
}

// stalled is called when this station could not send or listen for a while: what it
// owns may have been taken. It keeps quiet until it must have heard who took it.
func (e *election) stalled(now time.Time) {
	e.quiet = now.Add(round + round/2)
	for _, c := range e.contests {
		c.probed = 0
		if !c.own {
			c.listen = now.Add(silence)
		}
	}
	e.wakeAt(e.quiet)
}

// decideAll decides every contest; next is when it must be called again at the latest.
func (e *election) decideAll(now time.Time) (next time.Time) {
	e.wake = time.Time{}
	if !e.quiet.IsZero() && !now.Before(e.quiet) {
		e.quiet, e.fx.beat = time.Time{}, true // another that kept quiet, too, hears of it at once
	}
	e.wakeAt(e.quiet)
	for vip, c := range e.contests {
		e.decide(now, vip, c)
	}
	return e.wake
}

func (e *election) decide(now time.Time, vip netip.Addr, c *contest) {
	for s, o := range c.others {
		if !now.Before(o.until) {
			delete(c.others, s)
		} else {
			e.wakeAt(o.until)
		}
	}
	s, other := c.owner(now)
	if other != nil {
		c.seen = true
	}
	switch {
	case c.own && c.blocked(now) != "":
		e.yield(now, vip, c)
	case c.own && other != nil && (now.Before(e.quiet) || e.loses(c, s, other)):
		e.yield(now, vip, c)
	case c.own:
		e.speak(now, vip, c)
		return
	}
	if c.own {
		return
	}
	if other != nil {
		c.vacant, c.probed, c.handed = time.Time{}, 0, false
		c.trouble, c.retry = "", time.Time{}
		return
	}
	if c.vacant.IsZero() {
		c.vacant = now
	}
	if c.blocked(now) != "" {
		c.probed = 0
		e.wakeAt(c.retry)
		return
	}
	start := c.vacant
	for _, t := range []time.Time{c.listen, e.quiet} {
		if t.After(start) {
			start = t
		}
	}
	start = start.Add(time.Duration(e.better(now, c)) * patience)
	if !c.seen {
		start = start.Add(min(time.Duration(c.rank)*newcomer, maxNewcomer))
	}
	if now.Before(start) {
		c.probed = 0
		e.wakeAt(start)
		return
	}
	e.ask(now, vip, c)
}

// ask probes for a vacant VIP, and takes it when nobody answered or nobody needs to
// be asked.
func (e *election) ask(now time.Time, vip netip.Addr, c *contest) {
	if !c.handed || now.Sub(c.vacant) > silence {
		if c.probed > 0 && now.Before(c.probeNext) {
			e.wakeAt(c.probeNext)
			return
		}
		if c.probed < probes {
			c.probed++
			c.probeNext = now.Add(probeGap)
			e.fx.probe = append(e.fx.probe, vip)
			e.wakeAt(c.probeNext)
			return
		}
	}
	c.own, c.seen, c.handed, c.probed, c.trouble = true, true, false, 0, ""
	if c.top < 1<<32-1 {
		c.top++
	}
	c.term, c.vacant = c.top, time.Time{}
	c.announced, c.taken, c.defended = 0, now, time.Time{}
	e.fx.take, e.fx.beat = append(e.fx.take, vip), true
	e.speak(now, vip, c)
}

// speak announces an owned VIP when it is time to.
func (e *election) speak(now time.Time, vip netip.Addr, c *contest) {
	if c.trouble != "" && !now.Before(c.retry) {
		c.trouble = ""
	}
	due := announcements()
	if c.announced >= len(due) || now.Before(e.quiet) {
		return
	}
	if !now.Before(c.taken.Add(due[c.announced])) {
		c.announced++
		e.fx.announce = append(e.fx.announce, vip)
	}
	if c.announced < len(due) {
		e.wakeAt(c.taken.Add(due[c.announced]))
	}
}

func (e *election) yield(now time.Time, vip netip.Addr, c *contest) {
	c.own, c.probed, c.announced, c.handed = false, 0, 0, false
	c.vacant, c.trouble, c.retry = now, "", time.Time{}
	e.fx.drop, e.fx.beat = append(e.fx.drop, vip), true
}

// loses reports whether this station must yield to another owner: the later taking
// wins. It is the one that the segment heard last, and a station that hears it hears
// more than one that does not.
func (e *election) loses(c *contest, s station, o *opinion) bool {
	return cmp.Or(cmp.Compare(c.term, o.term), s.compare(e.self)) < 0
}

// owner returns the strongest other owner.
func (c *contest) owner(now time.Time) (station, *opinion) {
	var by station
	var best *opinion
	for s, o := range c.others {
		if o.role < owner || !now.Before(o.until) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(o.term, best.term), by.compare(s)) > 0 {
			by, best = s, o
		}
	}
	return by, best
}

// better counts the stations that are heard and go before this one.
func (e *election) better(now time.Time, c *contest) int {
	n := 0
	for s, o := range c.others {
		rank := slices.Index(c.candidacy.Candidates, s.machine)
		if o.role == standby && now.Before(o.until) && rank >= 0 &&
			cmp.Or(cmp.Compare(rank, c.rank), s.compare(e.self)) < 0 {
			n++
		}
	}
	return n
}

// blocked says why this station may not own the VIP.
func (c *contest) blocked(now time.Time) string {
	switch {
	case !c.candidacy.Ready:
		return "this machine does not serve it"
	case c.rank < 0:
		return "this machine is not among its candidates"
	case !c.own && now.Before(c.retry):
		return c.trouble
	}
	return ""
}

// deputy returns the hardware address to answer with for a VIP: this station's for
// one that it owns, and that of an owner whose agent restarts if this station would be
// the next owner. False: somebody else answers.
func (e *election) deputy(now time.Time, vip netip.Addr) (hardware, bool) {
	c := e.contests[vip]
	if c == nil || now.Before(e.quiet) {
		return hardware{}, false
	}
	if c.own {
		return e.self.mac, true
	}
	if s, o := c.owner(now); o != nil && o.role == paused && c.blocked(now) == "" && e.better(now, c) == 0 {
		return s.mac, true
	}
	return hardware{}, false
}

// entries are what this station has to say in a heartbeat.
func (e *election) entries(now time.Time) []entry {
	entries := make([]entry, 0, len(e.contests)+len(e.farewell))
	for vip, c := range e.contests {
		w := entry{vip: vip, term: c.top}
		switch {
		case c.own && now.Before(e.quiet):
			continue
		case c.own:
			w.role, w.term = owner, c.term
		case now.Before(c.listen):
			continue // an owner that came back may still have it kept for it
		case c.blocked(now) == "":
			w.role = standby
		}
		entries = append(entries, w)
	}
	for vip, term := range e.farewell {
		entries = append(entries, entry{vip: vip, term: term})
	}
	clear(e.farewell)
	return entries
}

// flush returns what is to be done, once.
func (e *election) flush() effects {
	fx := e.fx
	e.fx = effects{}
	return fx
}

// wakeAt asks for another look at the contests.
func (e *election) wakeAt(t time.Time) {
	if !t.IsZero() && (e.wake.IsZero() || t.Before(e.wake)) {
		e.wake = t
	}
}

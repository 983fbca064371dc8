package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/wire"
	agentv1 "fairlead.dev/proto/agent/v1"
)

const (
	// silentGrace is how long a proxy that does not answer its agent is believed to
	// serve on: reading a large configuration takes it seconds. One that ended has none.
	silentGrace = 5 * time.Second
	// repairEvery is how often the held addresses are looked at though nothing is heard:
	// somebody may have taken one away. What went wrong is tried again after retryHold.
	repairEvery = 10 * time.Second
	retryHold   = time.Second
	// afterWithdraw is how long nothing must have come to VIPs that are withdrawn, for
	// routers to have followed.
	afterWithdraw = time.Second
)

// announcer decides which VIPs the machine announces, and has the drivers do it.
type announcer struct {
	machine string
	drivers Network
	proxy   Proxy
	relay   *relay
	// balancer has the data planes that a VIP may need.
	balancer *balancer
	log      *slog.Logger
	now      func() time.Time
	changed  event // what a report says may differ
	news     signal

	mu      sync.Mutex
	config  *agentv1.MachineConfig
	whole   bool // there is a whole state to announce by
	vips    map[string]model.VIP
	peers   map[string]model.Peer
	secrets map[string]string // passwords by peer
	began   bool
	started time.Time
	// remembered are the VIPs that were known when it started, before any plane spoke.
	remembered map[netip.Addr]struct{}
	silent     time.Time // since when a proxy that served does not answer; zero: it does
	served     bool      // the proxy that runs has served
	starts     uint32    // which one that is
	drained    bool      // nothing is announced: the machine drains, and its time is over
	gone       map[netip.Addr]time.Time
	withheld   map[netip.Addr]string    // why a VIP is not announced
	lacks      map[netip.Addr]string    // what one that is announced lacks
	ready      map[netip.Addr]bool      // VIPs that could be announced when they were looked at last
	partly     map[netip.Addr]time.Time // since when the proxy serves some of a VIP's listeners only
	since      map[netip.Addr]model.VIPObserved
	awaiting   map[netip.Addr]*awaiting
	trouble    error // of the loopback
}

func newAnnouncer(c Config, relay *relay, b *balancer) *announcer {
	a := &announcer{
		machine: c.Name, drivers: c.Network, proxy: c.Proxy, relay: relay, balancer: b, log: c.Log, now: c.Now,
		news: newSignal(), config: &agentv1.MachineConfig{},
		vips: map[string]model.VIP{}, peers: map[string]model.Peer{}, secrets: map[string]string{},
		gone: map[netip.Addr]time.Time{}, withheld: map[netip.Addr]string{}, since: map[netip.Addr]model.VIPObserved{},
		lacks: map[netip.Addr]string{}, ready: map[netip.Addr]bool{}, partly: map[netip.Addr]time.Time{}, awaiting: map[netip.Addr]*awaiting{},
		remembered: map[netip.Addr]struct{}{},
	}
	if a.drivers.Changed == nil {
		a.drivers.Changed = make(chan struct{}, 1)
	}
	return a
}

// receive implements part.
func (a *announcer) receive(c delta.Change) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.Resource == nil {
		switch c.Type {
		case typeVIP:
			gone := a.vips[c.Name].Address
			delete(a.since, gone)
			delete(a.ready, gone)
			delete(a.partly, gone)
			delete(a.awaiting, gone)
			delete(a.vips, c.Name)
		case typePeer:
			delete(a.peers, c.Name)
			delete(a.secrets, c.Name)
		case typePassword:
			// A peer that still needs one keeps it: a Secret that is gone ends no session.
			if !a.peers[c.Name].NeedsPassword {
				delete(a.secrets, c.Name)
			}
		}
		return nil
	}
	switch c.Type {
	case typeVIP:
		v, err := readVIP(c.Resource)
		if err != nil {
			return err
		}
		a.vips[c.Name] = v
	case typePeer:
		var m agentv1.BgpPeer
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		p, err := wire.PeerOf(c.Name, &m)
		if err != nil {
			return fmt.Errorf("%w: %w", errUnreadable, err)
		}
		a.peers[c.Name] = p
		if !p.NeedsPassword {
			delete(a.secrets, c.Name)
		}
	case typePassword:
		var m agentv1.BgpPassword
		if err := unmarshal(c.Resource, &m); err != nil {
			return err
		}
		a.secrets[c.Name] = m.GetPassword()
	}
	return nil
}

// commit implements part.
func (a *announcer) commit(got received) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.config, a.whole = got.config, got.whole
	a.news.raise()
}

// run implements part: it announces until ctx is done.
func (a *announcer) run(ctx context.Context) error {
	work := []func(context.Context) error{a.announce}
	if s := a.drivers.Speaker; s != nil {
		work = append(work, s.Run)
	}
	if s := a.drivers.Segment; s != nil {
		work = append(work, s.Run)
	}
	return together(ctx, work...)
}

func (a *announcer) announce(ctx context.Context) error {
	a.begin()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-a.news:
		case <-a.drivers.Changed:
			a.changed.raise()
			continue
		}
		if again := a.apply(); again > 0 {
			timer.Reset(again)
		}
	}
}

// begin notes when this agent begins to announce, and the VIPs that an agent before may have
// announced.
func (a *announcer) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = a.now()
	for _, v := range a.vips {
		a.remembered[v.Address] = struct{}{}
	}
}

// apply tells the drivers what they should do now, and returns when to look again; 0: not
// before something happens.
func (a *announcer) apply() (again time.Duration) {
	listening := a.relay.listening(a.listeners())
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	unready, look := a.proxyTrouble(now)
	a.balancer.proxyIs(unready)
	soon := func(d time.Duration) {
		if d > 0 && (again == 0 || d < again) {
			again = d
		}
	}
	soon(look)
	speak := model.Speaking{Machine: a.machine, RouterID: wire.Machine(a.machine, a.config).RouterID}
	held, owned, serves := map[netip.Addr]bool{}, []netip.Addr{}, a.balancer.serves()
	for _, v := range a.vips {
		switch v.Mode {
		case model.AnnounceBGP:
			held[v.Address] = true
		case model.AnnounceL2:
			owned = append(owned, v.Address)
			// Whoever answers for it on the segment passes flows on to this machine's proxy.
			if serves[v.Address] {
				held[v.Address] = true
			}
		}
	}
	var refused map[netip.Addr]error
	if a.whole { // before, it is not known which addresses of an earlier agent are to go
		refused, look = a.hold(held, owned, serves, now)
		soon(look)
	}
	clear(a.withheld)
	clear(a.lacks)
	var candidacies []model.Candidacy
	waiting := false
	for _, name := range slices.Sorted(maps.Keys(a.vips)) {
		v := a.vips[name]
		why, left := a.obstacle(v, unready, listening, refused[v.Address], now)
		soon(left)
		if a.ready[v.Address] = why == ""; why != "" {
			a.withheld[v.Address] = why
			waiting = waiting || why != unproxied && (len(v.Frontends) > 0 || len(v.Listeners) > 0)
		}
		switch v.Mode {
		case model.AnnounceBGP:
			if why == "" {
				speak.Prefixes = append(speak.Prefixes, model.Advertisement{Prefix: v.Prefix(), Path: v.Path})
			}
		case model.AnnounceL2:
			candidacies = append(candidacies, model.Candidacy{VIP: v.Address, Candidates: v.Candidates, Interfaces: v.Interfaces, Ready: why == ""})
		default:
			a.withheld[v.Address] = "this agent does not know the announcement mode of the VIP's pool: upgrade the agent"
		}
	}
	slices.SortFunc(speak.Prefixes, func(x, y model.Advertisement) int { return x.Prefix.Compare(y.Prefix) })
	for _, name := range slices.Sorted(maps.Keys(a.peers)) {
		p := a.peers[name]
		p.Password = model.Redacted(a.secrets[name])
		speak.Peers = append(speak.Peers, p)
	}
	if !a.began {
		// The whole state, or the time that a peer may be kept waiting for it. Where the
		// proxy had to be started, what a peer kept leads nowhere: it is to drop it at once.
		fresh := a.proxy.Status().Starts > 0
		if left := a.started.Add(beginGrace).Sub(now); left > 0 && (waiting || !a.whole) && !a.drained && !fresh {
			soon(left)
			return again
		}
		if !a.whole {
			return again // there is nothing yet, and news will come
		}
		a.began = true
	}
	if a.drivers.Speaker != nil {
		a.drivers.Speaker.Set(speak)
	}
	if a.drivers.Segment != nil {
		a.drivers.Segment.Set(candidacies)
	}
	a.changed.raise()
	return again
}

// hold has the loopback hold the addresses, and those that went a little longer: while
// other machines pass flows of theirs on to this machine's proxy, as served says, and
// linger. owned are those that the segment may hold. It returns what cannot be held, and
// when to look again.
func (a *announcer) hold(want map[netip.Addr]bool, owned []netip.Addr, served map[netip.Addr]bool, now time.Time) (refused map[netip.Addr]error, again time.Duration) {
	if a.drivers.Loopback == nil {
		return nil, 0
	}
	for address := range want {
		a.gone[address] = time.Time{}
	}
	for address := range served { // an agent that has just started did not see it go
		a.gone[address] = time.Time{}
	}
	var addresses []netip.Addr
	if len(want) > 0 {
		again = repairEvery
	}
	for address, until := range a.gone {
		switch {
		case want[address]:
		case served[address]:
			again = repairEvery
		default:
			if until.IsZero() {
				until = now.Add(linger)
				a.gone[address] = until
			}
			if !now.Before(until) {
				delete(a.gone, address)
				continue
			}
			if left := until.Sub(now); again == 0 || left < again {
				again = left
			}
		}
		addresses = append(addresses, address)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	slices.SortFunc(owned, netip.Addr.Compare)
	err := a.drivers.Loopback.Set(addresses, owned...)
	if err != nil && (a.trouble == nil || a.trouble.Error() != err.Error()) {
		a.log.Error("cannot add a VIP to this machine", "error", err)
	}
	a.trouble = err
	if err != nil {
		again = min(cmp.Or(again, retryHold), retryHold)
	}
	return a.drivers.Loopback.Refused(), again
}

// proxyTrouble says why the proxy serves nothing, and when to look again.
func (a *announcer) proxyTrouble(now time.Time) (why string, again time.Duration) {
	s := a.proxy.Status()
	if s.Starts != a.starts { // the one before has ended, though its end was not seen
		a.served, a.silent, a.starts = false, time.Time{}, s.Starts
	}
	switch s.State {
	case proxyNone:
		return unproxied, 0
	case proxyReady, "draining":
		a.served, a.silent = true, time.Time{}
		return "", 0
	case "starting":
		if a.served && a.silent.IsZero() {
			a.silent = now
		}
		if left := a.silent.Add(silentGrace).Sub(now); a.served && left > 0 {
			return "", left
		}
	default:
		a.served, a.silent = false, time.Time{}
	}
	return strings.TrimSuffix("the proxy is "+s.State+": "+s.Message, ": "), 0
}

// withdraw takes everything back and returns when the peers have been told. It says whether
// there was anything.
func (a *announcer) withdraw(ctx context.Context) bool {
	a.quit()
	a.apply()
	if !a.announces() {
		return false
	}
	if s := a.drivers.Speaker; s != nil {
		limited, cancel := context.WithTimeout(ctx, followTime) // a peer may take nothing
		defer cancel()
		if err := s.Withdraw(limited); err != nil && ctx.Err() == nil {
			a.log.Warn("peers may not have received the withdrawal of the VIPs", "error", err)
		}
	}
	return true
}

// quit has nothing announced from now on.
func (a *announcer) quit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drained = true
}

// survives says why flows to this machine's proxy would break if the VIPs were withdrawn
// now, "" if none would.
func (a *announcer) survives() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.vips)) {
		if why := a.balancer.survives(a.vips[name]); why != "" {
			return why
		}
	}
	return ""
}

// announces says whether there is anything to withdraw.
func (a *announcer) announces() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.vips) > 0 && a.began
}

// resume announces again after withdraw.
func (a *announcer) resume() {
	a.mu.Lock()
	a.drained = false
	a.mu.Unlock()
	a.news.raise()
}

// sessions are those with the peers, sorted by peer.
func (a *announcer) sessions() []model.Session {
	if a.drivers.Speaker == nil {
		return nil
	}
	return a.drivers.Speaker.Sessions()
}

// report implements part.
func (a *announcer) report(to *agentv1.Report) {
	to.Sessions, to.Vips = wire.Sessions(a.sessions()), wire.VIPStates(a.observed())
}

// observed is what the machine does about each VIP, sorted by address.
func (a *announcer) observed() []model.VIPObserved {
	sessions := a.sessions()
	told := map[netip.Addr]bool{}
	for _, s := range sessions {
		for _, p := range s.Advertised {
			told[p.Addr()] = s.State == model.SessionEstablished || told[p.Addr()]
		}
	}
	owned := map[netip.Addr]model.VIPObserved{}
	if a.drivers.Segment != nil {
		for _, o := range a.drivers.Segment.Status() {
			owned[o.Address] = o
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []model.VIPObserved
	for _, v := range a.vips {
		o := model.VIPObserved{Address: v.Address, State: model.VIPWithheld, Message: a.withheld[v.Address]}
		switch own, known := owned[v.Address]; {
		case o.Message != "":
		case v.Mode == model.AnnounceL2 && known:
			o.State, o.Message = own.State, own.Message
		case v.Mode == model.AnnounceBGP && told[v.Address]:
			o.State = model.VIPAnnounced
		case !a.began:
			o.Message = "the agent has just started"
		case v.Mode == model.AnnounceBGP:
			o.Message = noSession(sessions)
		default:
			o.Message = "the agent has just started"
		}
		if o.State == model.VIPAnnounced {
			o.Message = cmp.Or(o.Message, a.lacks[v.Address])
		}
		if was := a.since[v.Address]; was.State == o.State {
			o.Since = was.Since
		} else {
			o.Since = a.now()
		}
		a.since[v.Address] = o
		list = append(list, o)
	}
	slices.SortFunc(list, func(x, y model.VIPObserved) int { return x.Address.Compare(y.Address) })
	return list
}

// noSession says why a VIP that could be advertised is not.
func noSession(sessions []model.Session) string {
	if len(sessions) == 0 {
		return "no BGPPeer selects this machine"
	}
	var each []string
	for _, s := range sessions {
		if s.State == model.SessionEstablished {
			each = append(each, s.Peer+" has not received the prefix: "+cmp.Or(s.Message, "it is being sent"))
			continue
		}
		with, message := s.Peer, s.Message
		if rest, named := strings.CutPrefix(message, "peer "+s.Peer+" ("); named {
			if at, why, whole := strings.Cut(rest, "): "); whole {
				with, message = s.Peer+" ("+at+")", why
			}
		}
		each = append(each, "session with "+with+" is not established ("+string(s.State)+"): "+cmp.Or(message, string(s.Reason), "it has just started"))
	}
	return "no BGP session advertises it: " + strings.Join(each, "; ")
}

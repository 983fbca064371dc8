package agent

import (
	"cmp"
	"net/netip"
	"time"

	"fairlead.dev/internal/model"
)

// obstacle says why a VIP cannot be announced now, "" if it can, and when to look again.
// unready is what is wrong with the proxy, refused why the loopback does not hold the VIP.
func (a *announcer) obstacle(v model.VIP, unready string, listening map[string]struct{}, refused error, now time.Time) (why string, again time.Duration) {
	lacks, pending, some := a.lacking(v, unready, listening)
	if why = lacks; lacks == "" || !some {
		delete(a.partly, v.Address)
	} else if again = a.waitForRest(v.Address, now); again <= 0 || lacks == unproxied {
		a.lacks[v.Address], why, again = lacks, "", 0
	}
	if waits, left := a.awaits(v, now); why == "" && waits != "" {
		why, again = waits, left
	}
	if waits, left := a.awaitsKernel(v, pending, now); why == "" && waits != "" {
		why, again = waits, left
	}
	switch {
	case a.drained:
		why = "the machine is drained"
	case refused != nil && v.Mode == model.AnnounceBGP:
		why = refused.Error() // what is sent to the VIP would be lost here, whoever serves it
	}
	return why, again
}

// lacking says what of a VIP is not served here, "" for nothing, and whether some of it
// is. The proxy serves its listeners, the data planes what leads to backends of its own. pending
// is what a data plane is about to take.
func (a *announcer) lacking(v model.VIP, unready string, listening map[string]struct{}) (why, pending string, some bool) {
	unbalanced, pending, own := a.balancer.unbalanced(v)
	if own && len(v.Listeners) == 0 {
		return unbalanced, "", false
	}
	why, some = unserved(v.Listeners, listening)
	if unready != "" {
		why, some = unready, false
	}
	if own {
		some = some || unbalanced == ""
		if unready == unproxied { // which never changes
			why = cmp.Or(unbalanced, why)
		}
	}
	return cmp.Or(why, unbalanced), pending, some
}

// listeners are those that the VIPs lead to.
func (a *announcer) listeners() map[string]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	names := map[string]struct{}{}
	for _, v := range a.vips {
		for _, id := range v.Listeners {
			names[string(id)] = struct{}{}
		}
	}
	return names
}

// unserved says why the proxy does not serve what a VIP leads to, "" if it does, and
// whether it serves some of it.
func unserved(listeners []model.ListenerID, listening map[string]struct{}) (why string, some bool) {
	if len(listeners) == 0 {
		return "no proxy or data plane on this machine serves it", false
	}
	for _, id := range listeners {
		if _, taken := listening[string(id)]; taken {
			some = true
		} else {
			why = cmp.Or(why, "the proxy does not serve listener "+string(id)+" yet")
		}
	}
	return why, some
}

// waitForRest is how long a VIP of which the proxy serves some listeners waits for the
// others. One that was ready does not: a listener that is added, or that the proxy
// refuses, must not take those off the air that work.
func (a *announcer) waitForRest(vip netip.Addr, now time.Time) time.Duration {
	if _, known := a.partly[vip]; !known {
		a.partly[vip] = now
	}
	switch {
	case a.ready[vip]:
		return 0
	case !a.began:
		return a.started.Add(beginGrace).Sub(now)
	}
	return a.partly[vip].Add(beginGrace).Sub(now)
}

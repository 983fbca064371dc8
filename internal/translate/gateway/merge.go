package gateway

import (
	"slices"
	"strconv"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/translate/field"
)

// merge puts together the listeners of a Gateway and of its ListenerSets, who comes first
// first, and refuses those between which requests could not choose.
//
// Within one resource all of those that are in conflict are refused (GatewaySpec.listeners);
// between resources those of the one that comes later (ListenerSetSpec.listeners).
type merge struct {
	protocols map[portSlot]gatewayv1.ProtocolType // of listeners that were taken
	hosts     map[portHost]gatewayv1.ProtocolType // the same, by hostname
}

type portHost struct {
	port     int32
	hostname string
}

// portSlot is a port of one of the transports: they do not meet.
type portSlot struct {
	port int32
	udp  bool
}

func (l *Listener) slot() portSlot {
	return portSlot{l.Port, l.protocol == gatewayv1.UDPProtocolType}
}

// portHost is what keeps listeners apart that share a port.
func (l *Listener) portHost() portHost {
	if l.Direct() {
		return portHost{l.Port, string(l.protocol)}
	}
	return portHost{l.Port, l.Hostname}
}

// together reports whether listeners of two protocols may share a port, each for its own
// hostnames: server names choose between HTTPS and TLS before anything is said.
func together(a, b gatewayv1.ProtocolType) bool {
	names := func(p gatewayv1.ProtocolType) bool {
		return p == gatewayv1.HTTPSProtocolType || p == gatewayv1.TLSProtocolType
	}
	return a == b || names(a) && names(b)
}

func newMerge() *merge {
	return &merge{protocols: map[portSlot]gatewayv1.ProtocolType{}, hosts: map[portHost]gatewayv1.ProtocolType{}}
}

// PortNumber writes a port for a message.
func PortNumber(port int32) string { return strconv.Itoa(int(port)) }

func (l *Listener) refuse(reason gatewayv1.ListenerConditionReason, message string) {
	l.Conflicted.Fail(reason, message)
	if l.Accepted.Failed && l.Accepted.Reason == gatewayv1.ListenerReasonUnsupportedProtocol {
		// That it would be in conflict is the more precise thing to say.
		l.Accepted = ListenerResult{Failed: true, Reason: reason, Message: message + "; " + l.Accepted.Message}
		return
	}
	l.Accepted.Fail(reason, message)
}

// add finds conflicts of the listeners of one resource, with those that were taken and
// among themselves. Those of a protocol that is never accepted do not take a port away from
// others of the same resource, except those that would speak HTTP or TLS there.
func (m *merge) add(ls []Listener) {
	sameHost, samePort := map[portHost][]int{}, map[portSlot][]int{}
	for i := range ls {
		l := &ls[i]
		taken, is := m.protocols[l.slot()]
		_, host := m.hosts[l.portHost()]
		switch {
		case is && !together(taken, l.protocol):
			l.refuse(gatewayv1.ListenerReasonProtocolConflict, "port "+PortNumber(l.Port)+" of the Gateway speaks "+string(taken)+" already")
			continue
		case is && host && l.Direct():
			l.refuse(gatewayv1.ListenerReasonProtocolConflict, "port "+PortNumber(l.Port)+" of the Gateway has a listener of the same protocol already")
			continue
		case is && host:
			l.refuse(gatewayv1.ListenerReasonHostnameConflict, "port "+PortNumber(l.Port)+" of the Gateway has a listener with the same hostname already")
			continue
		}
		if len(l.takes()) > 0 {
			sameHost[l.portHost()] = append(sameHost[l.portHost()], i)
			samePort[l.slot()] = append(samePort[l.slot()], i)
		}
	}
	for _, list := range sameHost {
		for _, i := range list {
			other := slices.IndexFunc(list, func(j int) bool { return j != i && together(ls[j].protocol, ls[i].protocol) })
			if other < 0 {
				continue
			}
			switch o := &ls[list[other]]; {
			case ls[i].Direct():
				ls[i].refuse(gatewayv1.ListenerReasonProtocolConflict, "listener "+string(o.Name)+" has the same port and protocol")
			case ls[i].protocol == o.protocol:
				ls[i].refuse(gatewayv1.ListenerReasonHostnameConflict, "listener "+string(o.Name)+" has the same port, protocol and hostname")
			default:
				ls[i].refuse(gatewayv1.ListenerReasonHostnameConflict, "listener "+string(o.Name)+" has the same port and hostname, for protocol "+string(o.protocol))
			}
		}
	}
	for _, list := range samePort {
		for _, i := range list {
			if j := slices.IndexFunc(list, func(j int) bool { return !together(ls[j].protocol, ls[i].protocol) }); j >= 0 {
				ls[i].refuse(gatewayv1.ListenerReasonProtocolConflict,
					"listener "+string(ls[list[j]].Name)+" wants protocol "+string(ls[list[j]].protocol)+" on the same port")
			}
		}
	}
}

// take lets listeners that are accepted have their ports and hostnames.
func (m *merge) take(ls []Listener) {
	for i := range ls {
		if l := &ls[i]; l.Serves() {
			m.protocols[l.slot()] = l.protocol
			m.hosts[l.portHost()] = l.protocol
		}
	}
}

// relate tells the listeners that were taken of hostnames that cover theirs, and those of
// HTTPS of hostnames that theirs cover.
func (m *merge) relate(lists [][]Listener) {
	covered := map[portHost]string{} // by the wider one: a name that it covers
	for _, list := range lists {
		for i := range list {
			l := &list[i]
			if !l.Serves() || l.Direct() {
				continue
			}
			for pattern, more := field.Wider(l.Hostname); more; pattern, more = field.Wider(pattern) {
				k := portHost{l.Port, pattern}
				protocol, stands := m.hosts[k]
				if !stands {
					continue
				}
				// With TLS there are requests for a wider name only where that is of HTTPS.
				l.inner = l.inner || l.protocol != gatewayv1.TLSProtocolType || protocol == gatewayv1.HTTPSProtocolType
				if l.protocol == gatewayv1.HTTPSProtocolType && l.Overlaps == "" {
					l.Overlaps = pattern
				}
				if name, known := covered[k]; !known || l.Hostname < name {
					covered[k] = l.Hostname
				}
			}
		}
	}
	for _, list := range lists {
		for i := range list {
			if l := &list[i]; l.Serves() && l.protocol == gatewayv1.HTTPSProtocolType && l.Overlaps == "" {
				l.Overlaps = covered[portHost{l.Port, l.Hostname}]
			}
		}
	}
}

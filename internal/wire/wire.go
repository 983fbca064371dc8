// Package wire words the model in the agent protocol and back.
//
// It is pure and holds nothing. It refuses nothing either: what it does not know of
// a newer peer it says to be unknown.
package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// MachineConfig is what a machine is told about itself. ttl is how long the plane
// waits for a report before it calls the machine lost.
func MachineConfig(m model.Machine, ttl time.Duration) *agentv1.MachineConfig {
	return &agentv1.MachineConfig{
		Cordoned:   m.Cordoned,
		DrainTime:  durationpb.New(time.Duration(m.DrainSeconds) * time.Second),
		TimeToLive: durationpb.New(ttl),
		RouterId:   m.RouterID.AsSlice(),
	}
}

// Machine is what MachineConfig says of the named machine, without its view, which no
// machine needs to know. Drain times are rounded up to seconds.
func Machine(name string, c *agentv1.MachineConfig) model.Machine {
	drain := max(0, c.GetDrainTime().AsDuration())
	return model.Machine{
		Name:         name,
		Cordoned:     c.GetCordoned(),
		DrainSeconds: uint32((drain + time.Second - 1) / time.Second),
		RouterID:     addr(c.GetRouterId()),
	}
}

// Proxy is the state of a machine's proxy, for people.
func Proxy(p *agentv1.Proxy) model.ProxyStatus {
	return model.ProxyStatus{
		State:    proxyState(p.GetState()),
		Version:  p.GetVersion(),
		Starts:   p.GetStarts(),
		Message:  p.GetMessage(),
		RSSBytes: p.GetRssBytes(),
		Requests: p.GetRequests(),
	}
}

func proxyState(s agentv1.Proxy_State) string {
	switch s {
	case agentv1.Proxy_STATE_STARTING:
		return "starting"
	case agentv1.Proxy_STATE_READY:
		return "ready"
	case agentv1.Proxy_STATE_DRAINING:
		return "draining"
	case agentv1.Proxy_STATE_BACKOFF:
		return "backoff"
	case agentv1.Proxy_STATE_STOPPED:
		return "stopped"
	case agentv1.Proxy_STATE_OFF:
		return "off"
	case agentv1.Proxy_STATE_NONE:
		return "none"
	default:
		return "unknown"
	}
}

// Refused lists what a proxy does not run as wanted, for people, in the order of the
// report.
func Refused(problems []*agentv1.Problem) []model.RefusedItem {
	var items []model.RefusedItem
	for _, p := range problems {
		kind := "refused"
		if p.GetKind() == agentv1.Problem_KIND_WAITING {
			kind = "waiting"
		}
		items = append(items, model.RefusedItem{Kind: kind, Type: p.GetTypeUrl(), Name: p.GetName(), Message: p.GetMessage()})
	}
	return items
}

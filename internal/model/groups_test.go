package model_test

import (
	"slices"
	"testing"

	"fairlead.dev/internal/model"
)

func TestGroupsAreAllThatIsNamed(t *testing.T) {
	h := model.VirtualHost{
		Policy: &model.RoutePolicy{Authorization: &model.Authorization{Service: "ns/auth/1"}},
		Routes: []model.Route{
			{Forward: &model.Forward{
				Backends: []model.WeightedGroup{{Group: "ns/b/1"}, {}, {Group: "ns/a/1"}},
				Mirrors:  []model.Mirror{{Group: "ns/m/1"}, {Group: "ns/a/1"}},
			}},
			{Redirect: &model.Redirect{}, Policy: &model.RoutePolicy{GlobalRateLimit: &model.GlobalRateLimit{Service: "ns/limit/1"}}},
		},
	}
	if got, want := h.Groups(), []model.GroupID{"ns/a/1", "ns/auth/1", "ns/b/1", "ns/limit/1", "ns/m/1"}; !slices.Equal(got, want) {
		t.Errorf("host: %v, want %v", got, want)
	}
	if got := (*model.RoutePolicy)(nil).Groups(); len(got) != 0 {
		t.Errorf("no policy: %v", got)
	}
}

func TestNearerPolicyCountsMatterByMatter(t *testing.T) {
	far := &model.RoutePolicy{MaxRequestBytes: 1, RateLimit: &model.RateLimit{Requests: 1}}
	near := &model.RoutePolicy{MaxRequestBytes: 2, Addresses: &model.AddressFilter{}}
	got := near.Or(far)
	if got.MaxRequestBytes != 2 || got.RateLimit != far.RateLimit || got.Addresses != near.Addresses {
		t.Errorf("got %+v", got)
	}
	if near.RateLimit != nil || (*model.RoutePolicy)(nil).Or(far) != far || near.Or(nil) != near {
		t.Error("inputs must stay as they are, and one alone is the answer")
	}
	no := false
	off := (&model.RoutePolicy{Compression: &model.Compression{}, GRPCWeb: &no}).Or(model.ContourEncoding())
	if len(off.Compression.Algorithms) > 0 || *off.GRPCWeb {
		t.Errorf("what is nearer says no: %+v", off)
	}
}

func TestListenerEntry(t *testing.T) {
	for _, c := range []struct {
		id       model.ListenerID
		protocol model.Protocol
		port     uint16
	}{
		{model.SharedListener(model.ProtocolHTTPS, 443), model.ProtocolHTTPS, 443},
		{model.OwnListener(model.ProtocolHTTP, 8080, "a-1", "b-2"), model.ProtocolHTTP, 8080},
		{"odd", "ODD", 0},
	} {
		if protocol, port := c.id.Entry(); protocol != c.protocol || port != c.port {
			t.Errorf("%s: %s %d", c.id, protocol, port)
		}
	}
}

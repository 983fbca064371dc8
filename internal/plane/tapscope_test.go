package plane

import (
	"errors"
	"strings"
	"testing"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
)

// TestTapNote: who taps what there is not is told so, at once; what may come yet is waited for.
func TestTapNote(t *testing.T) {
	row := func(kind, name, host string) model.RouteRow {
		return model.RouteRow{Host: host, Owner: model.Object{Kind: kind, Namespace: "shop", Name: name}}
	}
	rows := []model.RouteRow{row("HTTPRoute", "cart", "shop.example.com"), row("IngressRoute", "app", "*.apps.example.com")}
	const route = "HTTPRoute, GRPCRoute or IngressRoute"
	for _, c := range []struct {
		f      model.TapFilter
		stored string
		note   string
		none   string
	}{
		{f: model.TapFilter{Namespace: "shop", Name: "cart"}},
		{f: model.TapFilter{Kind: "httproute", Namespace: "shop", Name: "cart"}},
		{f: model.TapFilter{Namespace: "shop", Name: "crat"}, none: "there is no " + route + " shop/crat; did you mean shop/cart?"},
		{f: model.TapFilter{Namespace: "shop", Name: "other"}, none: "there is no " + route + " shop/other"},
		{f: model.TapFilter{Kind: "GRPCRoute", Namespace: "shop", Name: "cart"}, none: "there is no GRPCRoute shop/cart; did you mean shop/cart?"},
		{f: model.TapFilter{Kind: "Service", Namespace: "shop", Name: "cart"}, none: `kind "Service" owns no routes of requests: want ` + route},
		{f: model.TapFilter{Kind: "IngressRout", Namespace: "shop", Name: "app"}, none: `kind "IngressRout" owns no routes of requests: want ` + route + "; did you mean IngressRoute?"},
		{f: model.TapFilter{Namespace: "shop", Name: "new"}, stored: "HTTPRoute", note: "no route of HTTPRoute shop/new is published"},
		{f: model.TapFilter{Namespace: "shop"}},
		{f: model.TapFilter{Kind: "GRPCRoute", Namespace: "shop"}, note: "no route of namespace shop is published"},
		{f: model.TapFilter{Host: "shop.example.com"}},
		{f: model.TapFilter{Host: "a.apps.example.com"}},
		{f: model.TapFilter{Host: "*.example.com"}},
		{f: model.TapFilter{Host: "*.a.apps.example.com"}},
		{f: model.TapFilter{Host: "shop.example.org"}, note: "no route for host shop.example.org is published, so its requests are answered 404; did you mean shop.example.com?"},
		{f: model.TapFilter{Host: "*.example.org"}, note: "no route for host *.example.org is published"},
	} {
		note, err := noteOn(rows, c.f, c.stored)
		if !strings.HasPrefix(note, c.note) || c.note == "" && note != "" {
			t.Errorf("%s: note %q, want %q", c.f, note, c.note)
		}
		if (err != nil) != (c.none != "") || err != nil && (!errors.Is(err, console.ErrNone) || err.Error() != c.none) {
			t.Errorf("%s: %v, want %q", c.f, err, c.none)
		}
	}
	if note, err := noteOn(nil, model.TapFilter{Namespace: "none"}, ""); err != nil || note != "no route of namespace none is published" {
		t.Errorf("an empty namespace: %q, %v", note, err)
	}
}

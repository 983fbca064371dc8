package tap

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"fairlead.dev/internal/model"
)

func owner(string) (kind, namespace, name string) { return "HTTPRoute", "shop", "cart" }

func TestMatches(t *testing.T) {
	r := model.TapRecord{
		Route: "HTTPRoute/shop/cart/rules/0", Host: "Shop.Example:8443", Path: "/cart/1?a=b", Status: 503, Seconds: 0.2,
		Headers: map[string]string{"x-version": "2"}, ResponseHeaders: map[string]string{"server": "envoy"},
	}
	for _, c := range []struct {
		name string
		f    model.TapFilter
		want bool
	}{
		{"everything", model.TapFilter{}, true},
		{"owner", model.TapFilter{Kind: "httproute", Namespace: "shop", Name: "cart"}, true},
		{"another namespace", model.TapFilter{Namespace: "sho"}, false},
		{"another name", model.TapFilter{Namespace: "shop", Name: "car"}, false},
		{"another kind", model.TapFilter{Kind: "Ingress"}, false},
		{"host", model.TapFilter{Host: "shop.example"}, true},
		{"hosts below", model.TapFilter{Host: "*.example"}, true},
		{"another host", model.TapFilter{Host: "example"}, false},
		{"path", model.TapFilter{Path: "/cart"}, true},
		{"another path", model.TapFilter{Path: "/news"}, false},
		{"status", model.TapFilter{StatusFrom: 500, StatusTo: 599}, true},
		{"another status", model.TapFilter{StatusFrom: 200, StatusTo: 299}, false},
		{"slow", model.TapFilter{SlowerThan: 200 * time.Millisecond}, true},
		{"not slow enough", model.TapFilter{SlowerThan: time.Second}, false},
		{"header", model.TapFilter{Header: "x-version"}, true},
		{"header of the answer", model.TapFilter{Header: "server", Value: "envoy"}, true},
		{"another value", model.TapFilter{Header: "x-version", Value: "3"}, false},
		{"another header", model.TapFilter{Header: "x-other"}, false},
	} {
		if got := Matches(c.f, &r, owner); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestRedact(t *testing.T) {
	for path, want := range map[string]string{
		"/a?b=c":                          "/a?b=c",
		"/a?token=x&b=c":                  "/a?token=[redacted]&b=c",
		"/a?b=c;access_token=x":           "/a?b=c;access_token=[redacted]",
		"/a?X-Amz-Signature=x#id_token=y": "/a?X-Amz-Signature=[redacted]#id_token=[redacted]",
		"/a?%74oken=x&%2574oken=y":        "/a?%74oken=[redacted]&%2574oken=[redacted]",
		"/a?token[]=x&PASSWORD=y&apikey=": "/a?token[]=[redacted]&PASSWORD=[redacted]&apikey=[redacted]",
		"/a;sessionid=x/b":                "/a;sessionid=[redacted]/b",
		"/a?token=x/y;z?w=&b=c":           "/a?token=[redacted]&b=c",
		"/a;token=x/b":                    "/a;token=[redacted]/b",
		"/a?b?key=x":                      "/a?b?key=[redacted]",
		"/" + strings.Repeat("a", 600):    "/" + strings.Repeat("a", 508) + "...",
	} {
		r := model.TapRecord{Path: path}
		if Redact(&r); r.Path != want {
			t.Errorf("%s: got %s, want %s", path, r.Path, want)
		}
	}
	r := model.TapRecord{
		Headers: map[string]string{
			"authorization": "Basic x", "Cookie": "x", "x-api-key": "x", "proxy-authorization": "x", "x-request-id": "1",
			"referer": "https://u:p@a.test/b?code=x&c=d",
		},
		ResponseHeaders: map[string]string{"set-cookie": "x", "location": "/cb#access_token=x"},
	}
	Redact(&r)
	for name, want := range map[string]string{
		"authorization": Redacted, "Cookie": Redacted, "x-api-key": Redacted, "proxy-authorization": Redacted, "x-request-id": "1",
		"referer": "https://[redacted]@a.test/b?code=[redacted]&c=d",
	} {
		if r.Headers[name] != want {
			t.Errorf("%s: got %s, want %s", name, r.Headers[name], want)
		}
	}
	if r.ResponseHeaders["set-cookie"] != Redacted || r.ResponseHeaders["location"] != "/cb#access_token=[redacted]" {
		t.Errorf("answer: %v", r.ResponseHeaders)
	}
}

// No header that is recorded is a credential as a whole: the proxy does not even send those.
func TestNoCredentialIsRecorded(t *testing.T) {
	for _, name := range append(model.TapHeaders(), model.TapResponseHeaders()...) {
		if credentialHeaders[name] || credential(name) {
			t.Errorf("%s is recorded", name)
		}
	}
}

func TestBound(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	b := NewBound(2, now)
	passes := func(want bool) {
		t.Helper()
		got := b.Allow(now)
		if got {
			b.Take()
		}
		if got != want {
			t.Errorf("at %s: %v", now, got)
		}
	}
	passes(true)
	passes(true)
	passes(false)
	now = now.Add(-time.Hour) // the clock was set back
	passes(false)
	now = now.Add(time.Hour + 500*time.Millisecond)
	passes(true)
	passes(false)
	now = now.Add(time.Hour)
	passes(true)
	passes(true)
	passes(false)
}

// FuzzRedact: the value of a parameter that is a credential is not in what is shown, whatever is around it.
func FuzzRedact(f *testing.F) {
	f.Add("/a", "b=c", "token")
	f.Add("/\xff;", "&?;#", "X-Amz-Signature")
	f.Add("https://u:p@h/", "#", "%70assword")
	f.Fuzz(func(t *testing.T, before, after, name string) {
		const secret = "hunter2hunter2"
		if !credential(name) || strings.ContainsAny(name, "&;?#=") || strings.Contains(before+after+name, secret) {
			t.Skip()
		}
		for _, separator := range []string{"?", "?a=b&", "?a;", "#"} {
			r := model.TapRecord{Path: before + separator + name + "=" + secret + "&" + after, Headers: map[string]string{}}
			r.Headers["referer"] = r.Path
			Redact(&r)
			if strings.Contains(r.Path, secret) || strings.Contains(r.Headers["referer"], secret) {
				t.Errorf("shown: %q, %q", r.Path, r.Headers["referer"])
			}
			if len(r.Path) > maxPath || !utf8.ValidString(r.Path) {
				t.Errorf("%d bytes: %q", len(r.Path), r.Path)
			}
		}
	})
}

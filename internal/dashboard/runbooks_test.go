package dashboard

import (
	"strings"
	"testing"
)

// A link of an alert leads to a page, and runs nothing.
func TestRunbooksAddress(t *testing.T) {
	for _, address := range []string{"", "docs/runbooks", "/srv/runbooks", "../runbooks/", "https://git.example.com/fairlead/docs/runbooks", "http://[2001:db8::1]:8080/r?a=b"} {
		files, err := Files(Options{}, RuleOptions{Runbooks: address})
		if err != nil {
			t.Fatalf("%q: %v", address, err)
		}
		want := "runbook_url: \"" + strings.TrimSuffix(address, "/")
		if rules := string(files[len(files)-1].Content); !strings.Contains(rules, want) {
			t.Errorf("%q: the rules do not have %s", address, want)
		}
	}
	for _, address := range []string{"javascript:alert(1)", "JavaScript:alert(1)", "javascript://x/%0aalert(1)", " javascript:alert(1)", "data:text/html,x", "file:///srv", "https:", "https:///a", "https://a b/", "http:a"} {
		if files, err := Files(Options{}, RuleOptions{Runbooks: address}); err == nil || files != nil || !strings.HasPrefix(err.Error(), "runbooks ") {
			t.Errorf("%q: %v", address, err)
		}
	}
}

package near

import (
	"slices"
	"testing"
)

func TestNames(t *testing.T) {
	names := []string{"edge-1", "edge-2", "edge-10", "shop/web", "shop/api", "tcp://192.0.2.1:80", "edge-1"}
	for text, want := range map[string][]string{
		"edge1":              {"edge-1"},
		"edge-":              {"edge-1", "edge-10", "edge-2"},
		"Edge-1":             {"edge-1", "edge-10", "edge-2"},
		"web":                {"shop/web"},
		"shop/wbe":           {"shop/web"},
		"tcp://192.0.2.1:81": {"tcp://192.0.2.1:80"},
		"nothing":            nil,
		"WEB":                {"shop/web"},
		"":                   nil,
	} {
		if got := Names(text, names); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := DidYouMean("shop/apu", names); got != "; did you mean shop/api?" {
		t.Errorf("it says %q", got)
	}
}

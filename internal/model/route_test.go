package model

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestObjectsAreOrderedAndNamed(t *testing.T) {
	objects := []Object{{"Machine", "", "edge-1"}, {"HTTPRoute", "b", "a"}, {"HTTPRoute", "a", "b"}}
	slices.SortFunc(objects, Object.Compare)
	var got []string
	for _, o := range objects {
		got = append(got, o.String())
	}
	if want := []string{"HTTPRoute a/b", "HTTPRoute b/a", "Machine edge-1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBackendStatesAreWrittenAsWords(t *testing.T) {
	got, err := json.Marshal([]BackendState{BackendReady, BackendDraining, BackendUnready})
	if err != nil {
		t.Fatal(err)
	}
	if want := `["ready","draining","unready"]`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/model"
)

func someChanges() []model.Change {
	at := time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC)
	return []model.Change{
		{Number: 4, At: at.Add(3 * time.Second), Verb: model.ChangeDeleted, Object: model.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "old"}},
		{
			Number: 3, Epoch: 2, Revision: 9, At: at.Add(2 * time.Second), Who: "alice\u202e\n\x1b[2J", Verb: model.ChangeChanged, Object: model.Object{Kind: "HTTPRoute", Namespace: "shop", Name: "www"},
			Diff: []model.FieldChange{{Path: "spec.a", Old: "1", New: "2"}, {Path: "spec.b", New: "\"x\ty\""}}, More: 1,
			Machines: []model.MachineTime{{Machine: "edge-1", At: at.Add(2200 * time.Millisecond)}, {Machine: "edge-2", At: at.Add(3200 * time.Millisecond)}},
		},
		{Number: 2, At: at.Add(time.Second), Who: "bob", Verb: model.ChangeCreated, Object: model.Object{Kind: "AddressPool", Name: "www"}},
		{Number: 1, At: at, Verb: model.ChangeChanged, Object: model.Object{Kind: "Service", Namespace: "team", Name: "app"}},
	}
}

// onlySome refuses a kind that there is not.
func onlySome(kind string) error {
	if strings.EqualFold(kind, "HTTPRout") {
		return errors.New("there is no such kind")
	}
	return nil
}

func TestChangesAreSelected(t *testing.T) {
	h := changesHandler(func(context.Context) ([]model.Change, error) { return someChanges(), nil }, onlySome)
	for query, want := range map[string][]uint64{
		"": {4, 3, 2, 1}, "namespace=shop": {4, 3}, "object=httproute": {4, 3}, "object=HTTPRoute/shop/www": {3}, "object=AddressPool/www": {2},
		"who=bob": {2}, "since=2026-01-31T09:30:02Z": {4, 3}, "limit=1": {4}, "sort=at&limit=1": {1}, "search=SPEC.B": {3},
		"namespace=shop&object=AddressPool/www": nil,
	} {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodGet, v1.ChangesPath+"?"+query, nil))
		var list []v1.Change
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, w.Code, w.Body)
		}
		var got []uint64
		for _, c := range list {
			got = append(got, c.Number)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, query := range []string{"since=yesterday", "object=a/b/c/d", "object=/x", "limit=0", "sort=x", "object=HTTPRout", "object=httprout/shop/www"} {
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodGet, v1.ChangesPath+"?"+query, nil))
		if w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
}

func TestWriteChanges(t *testing.T) {
	w := httptest.NewRecorder()
	changesHandler(func(context.Context) ([]model.Change, error) { return someChanges(), nil }, onlySome)(w, httptest.NewRequest(http.MethodGet, v1.ChangesPath, nil))
	var list []v1.Change
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := WriteChanges(&text, list, ChangesOptions{Diff: true}); err != nil {
		t.Fatal(err)
	}
	const want = `REVISION  AT                    WHO                  CHANGE                      FIELDS             MACHINES
-         2026-01-31T09:30:03Z  (see the audit log)  deleted HTTPRoute/shop/old                     
2/9       2026-01-31T09:30:02Z  alice?????[2J        changed HTTPRoute/shop/www  spec.a and 2 more  2 machines within 1.2 s
    spec.a: 1 -> 2
    spec.b: (none) -> "x?y"
    1 more field
-         2026-01-31T09:30:01Z  bob                  created AddressPool/www                        
-         2026-01-31T09:30:00Z  unknown              changed Service/team/app                       
`
	if got := text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text.Reset()
	if err := WriteChanges(&text, nil, ChangesOptions{}); err != nil || text.String() != "no change matches; planes keep the last 1,000\n" {
		t.Errorf("got %q, %v", text.String(), err)
	}
}

// What others have written makes no column wider than people can read; -o wide has it whole.
func TestLongNamesOfChanges(t *testing.T) {
	long := strings.Repeat("é", 100)
	list := []v1.Change{{
		Verb: v1.ChangeChanged, Who: "system:serviceaccount:" + long + ":deployer", Object: v1.Object{Kind: "HTTPRoute", Namespace: "shop", Name: long + "-end"},
		Diff: []v1.FieldChange{{Path: "metadata.annotations." + long}},
	}}
	row := func(o ChangesOptions) string {
		var text bytes.Buffer
		if err := WriteChanges(&text, list, o); err != nil {
			t.Fatal(err)
		}
		return strings.Split(text.String(), "\n")[1]
	}
	cut, wide := row(ChangesOptions{}), row(ChangesOptions{Wide: true})
	for _, want := range []string{"  system:serviceaccou...ééééééééé:deployer  changed HTTPRoute/shop/ééé", "é...é", "ééé-end  metadata.annotation...ééé"} {
		if !strings.Contains(cut, want) {
			t.Errorf("%q does not have %q", cut, want)
		}
	}
	if n := len([]rune(cut)); n > 200 {
		t.Errorf("a line has %d characters", n)
	}
	if strings.Contains(wide, "...") || strings.Count(wide, long) != 3 {
		t.Errorf("the wide row is %q", wide)
	}
}

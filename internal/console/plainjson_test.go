package console

import (
	"encoding/json"
	"testing"
)

func TestPlainJSON(t *testing.T) {
	want := "a\x1b[31m\u009b2J\x7f\u202etxt\u061cé<b>\u2028"
	b, err := json.Marshal(map[string]string{"who": want})
	if err != nil {
		t.Fatal(err)
	}
	b = PlainJSON(b)
	for _, r := range string(b) {
		if unsafeInJSON(r) || r < ' ' {
			t.Errorf("%q has %U", b, r)
		}
	}
	var got map[string]string
	if err := json.Unmarshal(b, &got); err != nil || got["who"] != want {
		t.Errorf("%q, %v: want %q", got["who"], err, want)
	}
}

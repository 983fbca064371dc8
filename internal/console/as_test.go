package console

import (
	"encoding/json"
	"testing"
)

// as is a value in another form that has the same JSON: an answer as it is declared, or as a plane makes it.
func as[To any](t *testing.T, value any) (to To) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &to)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

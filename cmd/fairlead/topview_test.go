package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
)

// TestTopView presses keys: the view asks for what they say, shows no more rows than the terminal has, and nothing that others
// wrote moves its cursor.
func TestTopView(t *testing.T) {
	var rows []v1.TopRow
	for i := range 60 {
		rows = append(rows, v1.TopRow{Name: fmt.Sprintf("HTTPRoute/team/app-%02d\x1b[2J", i), Rate: 12, Timed: 3, P50: 0.0042, P99: 1.5})
	}
	var asked []console.TopQuestion
	fails := false
	ask := func(_ context.Context, q console.TopQuestion) (v1.Top, error) {
		asked = append(asked, q)
		if fails {
			return v1.Top{}, errors.New("the plane is\x1b[31m away")
		}
		return v1.Top{Rows: rows, Total: len(rows), Machines: []string{"edge-1"}}, nil
	}
	v := &topView{ctx: t.Context(), ask: ask, question: console.TopQuestion{By: "routes", Sort: "rate"}}
	v.of = v.question
	do := func(m tea.Msg) {
		t.Helper()
		_, command := v.Update(m)
		if command != nil && fmt.Sprintf("%T", m) != "main.topTurn" {
			v.Update(command())
		}
	}
	press := func(key string) {
		t.Helper()
		switch key {
		case "tab":
			do(tea.KeyMsg{Type: tea.KeyTab})
		case "down":
			do(tea.KeyMsg{Type: tea.KeyDown})
		case "pgdown":
			do(tea.KeyMsg{Type: tea.KeyPgDown})
		default:
			do(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(key)})
		}
	}
	last := func() console.TopQuestion { return asked[len(asked)-1] }
	do(tea.WindowSizeMsg{Width: 120, Height: 20})
	press("e")
	if q := last(); q.Sort != "errors" || q.By != "routes" {
		t.Errorf("e asks for %+v", q)
	}
	shown := v.View()
	if lines := strings.Split(shown, "\n"); len(lines) != 20 || !strings.Contains(shown, "app-00") || strings.Contains(shown, "app-20") {
		t.Errorf("%d lines are shown:\n%s", len(lines), shown)
	}
	if strings.Contains(shown, "\x1b[2J") || !strings.Contains(shown, "4.2ms") || !strings.Contains(shown, "1.5s") {
		t.Errorf("the view is %q", shown)
	}
	press("down")
	press("pgdown")
	if shown := v.View(); strings.Contains(shown, "app-16") || !strings.Contains(shown, "app-17") {
		t.Errorf("one row and a page further down is shown:\n%s", shown)
	}
	for range 9 {
		press("pgdown")
	}
	if shown := v.View(); !strings.Contains(shown, "app-59") || v.first != 44 {
		t.Errorf("the end is at %d:\n%s", v.first, shown)
	}
	press("tab")
	if q := last(); q.By != "hosts" || q.Sort != "errors" || v.first != 0 {
		t.Errorf("tab asks for %+v", q)
	}
	before := len(asked)
	press(" ")
	if v.fetch() != nil || len(asked) != before || !strings.Contains(v.View(), "stopped") {
		t.Error("a stopped view asks")
	}
	press(" ")
	fails = true
	press("l")
	if foot := v.foot(); !strings.Contains(foot, "the plane is") || strings.Contains(foot, "\x1b") {
		t.Errorf("a failure is told as %q", foot)
	}
	fails = false
	v.question.Namespace = "shop"
	for range 7 {
		press("tab")
		if q := last(); q.By == "upstreams" || q.By == "frontends" || q.By == "backends" {
			t.Errorf("of one namespace it asks for %+v", q)
		}
	}
	// With numbers of samples, the next is asked for at once, and an answer to an earlier question is dropped.
	answer, next := v.Update(topAnswer{v.asked, v.question, v1.Top{Sample: 7, Rows: rows[:1]}, nil})
	if next == nil || answer.(*topView).top.Sample != 7 {
		t.Fatal("nothing is asked after sample 7")
	}
	if next(); last().After != 7 {
		t.Errorf("after sample 7 it asks for %+v", last())
	}
	if _, again := v.Update(topAnswer{v.asked - 1, v.question, v1.Top{Sample: 9}, nil}); again != nil || v.top.Sample != 7 {
		t.Error("an answer to an earlier question is shown")
	}
	press("e")
	if last().After != 0 {
		t.Errorf("another question waits for a sample: %+v", last())
	}
	if _, command := v.Update(tea.KeyMsg{Type: tea.KeyCtrlC}); command == nil {
		t.Error("Ctrl-C does not end the view")
	}
}

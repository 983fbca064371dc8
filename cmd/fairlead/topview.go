package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"fairlead.dev/internal/console"
	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/internal/traffic"
)

// askTop asks a plane what proxies answer.
type askTop func(context.Context, console.TopQuestion) (v1.Top, error)

// topView is fairlead top on a terminal.
type topView struct {
	ctx           context.Context //nolint:containedctx // that of the command
	ask           askTop
	question      console.TopQuestion
	top           v1.Top
	of            console.TopQuestion // what top answers
	trouble       string              // of the last question
	first         int                 // row that is shown first
	width, height int
	stopped       bool
	asking        bool
	asked         int // questions; answers to other than the last are dropped
}

// Messages of the view.
type (
	topAnswer struct {
		asked int
		of    console.TopQuestion
		top   v1.Top
		err   error
	}
	topTurn struct{}
)

// viewTop shows what proxies answer, each sample of it, until somebody ends it.
func viewTop(ctx context.Context, in io.Reader, out io.Writer, ask askTop, q console.TopQuestion, t v1.Top) error {
	view := &topView{ctx: ctx, ask: ask, question: q, of: q, top: t}
	_, err := tea.NewProgram(view, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler()).Run()
	if ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		return nil // the end of a view is no fault
	}
	if err != nil {
		return fmt.Errorf("show what proxies answer: %w", err)
	}
	return nil
}

// Init implements tea.Model.
func (v *topView) Init() tea.Cmd { return nextTurn() }

func nextTurn() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return topTurn{} }) }

// Update implements tea.Model.
func (v *topView) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		v.width, v.height = m.Width, m.Height
	case topTurn:
		if v.asking {
			return v, nextTurn()
		}
		return v, tea.Batch(nextTurn(), v.fetch())
	case topAnswer:
		if m.asked != v.asked {
			return v, nil // the question has changed meanwhile
		}
		v.asking, v.trouble = false, ""
		if m.err != nil {
			v.trouble = console.PlainText(m.err.Error())
			return v, nil
		}
		v.top, v.of = m.top, m.of
		if v.top.Sample != 0 {
			return v, v.fetch() // it is answered after the next sample
		}
	case tea.KeyMsg:
		return v, v.key(m.String())
	}
	return v, nil
}

// fetch asks for what is not shown yet, unless the view is stopped.
func (v *topView) fetch() tea.Cmd {
	if v.stopped {
		return nil
	}
	v.asking, v.asked = true, v.asked+1
	asked, of := v.asked, v.question
	q := of
	if v.of == of {
		q.After = v.top.Sample
	}
	return func() tea.Msg {
		t, err := v.ask(v.ctx, q)
		return topAnswer{asked, of, t, err}
	}
}

func (v *topView) key(name string) tea.Cmd {
	kinds := traffic.All
	at := slices.Index(kinds, traffic.By(v.question.By))
	page := max(1, v.rows())
	switch name {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "tab", "right":
		return v.change(kinds[(at+1)%len(kinds)], "")
	case "shift+tab", "left":
		return v.change(kinds[(at+len(kinds)-1)%len(kinds)], "")
	case "r":
		return v.change("", traffic.ByRate)
	case "e":
		return v.change("", traffic.ByErrors)
	case "l":
		return v.change("", traffic.ByTime)
	case "n":
		return v.change("", traffic.ByName)
	case " ":
		v.stopped = !v.stopped
	case "up", "k":
		v.first--
	case "down", "j":
		v.first++
	case "pgup":
		v.first -= page
	case "pgdown":
		v.first += page
	case "home", "g":
		v.first = 0
	}
	v.first = max(0, min(v.first, len(v.top.Rows)-page))
	return nil
}

// change asks for other rows, or for another order.
func (v *topView) change(by traffic.By, sort traffic.Sort) tea.Cmd {
	if by != "" {
		if v.question.Namespace != "" && !by.OfNamespace() {
			by = traffic.Routes // those of a namespace
		}
		v.question.By = string(by)
	}
	if sort != "" {
		v.question.Sort = string(sort)
	}
	v.first, v.stopped = 0, false
	return v.fetch()
}

// ownLines are those of the view that are no rows.
const ownLines = 4

func (v *topView) rows() int { return v.height - ownLines }

// View implements tea.Model.
func (v *topView) View() string {
	if v.height == 0 {
		return ""
	}
	t := v.top
	t.Rows = t.Rows[min(v.first, len(t.Rows)):]
	if len(t.Rows) > max(1, v.rows()) {
		t.Rows = t.Rows[:max(1, v.rows())]
	}
	var out bytes.Buffer
	if err := console.WriteTop(&out, t, v.of.By); err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
	for len(lines) < v.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:max(0, v.height-1)], v.foot())
	for i, l := range lines {
		lines[i] = ansi.Truncate(l, v.width, "")
	}
	return strings.Join(lines, "\n")
}

// foot is the last line.
func (v *topView) foot() string {
	switch {
	case v.trouble != "":
		return "no answer: " + v.trouble
	case v.stopped:
		return "stopped: space goes on, q ends"
	}
	return fmt.Sprintf("%s by %s | q: end  space: stop  tab: other rows  r e l n: by rate, errors, latency, name  arrows: scroll", v.question.By, v.question.Sort)
}

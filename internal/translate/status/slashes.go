package status

import (
	"slices"

	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// slashNotes are notes on paths of matches that take no request at any of these hosts' listeners.
func (t *Tables) slashNotes(c *memo.Context, paths []field.SlashedPath, hosts []model.HostKey) []string {
	if len(paths) == 0 {
		return nil // nearly always: nothing is read
	}
	var listeners []*model.Listener
	keepsEscaped := false
	for _, k := range hosts {
		if l := t.from.Listener.Listeners.Get(c, k.Listener); l != nil {
			listeners = append(listeners, l)
			keepsEscaped = keepsEscaped || l.EscapedSlashes() == model.SlashesKeep
		}
	}
	if len(listeners) == 0 {
		return nil
	}
	var notes []string
	for _, p := range paths {
		if !slices.ContainsFunc(listeners, p.TakenAt) {
			notes = append(notes, p.Note(keepsEscaped))
		}
	}
	return notes
}

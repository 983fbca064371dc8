package xds

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"fairlead.dev/internal/model"
)

// hostHeader cannot be edited as a header in Envoy; setting it rewrites the host.
const hostHeader = "host"

// edits are header edits, one after another, in Envoy's words. It removes first, then sets,
// then adds, so what a later edit removes or sets is not set or added in the first place.
func edits(list ...*model.HeaderEdits) (add []*corev3.HeaderValueOption, remove []string) {
	undo := func(name string) {
		add = slices.DeleteFunc(add, func(o *corev3.HeaderValueOption) bool { return o.GetHeader().GetKey() == name })
	}
	for _, e := range list {
		if e == nil {
			continue
		}
		for _, name := range e.Remove {
			if name == hostHeader {
				continue
			}
			undo(name)
			if !slices.Contains(remove, name) {
				remove = append(remove, name)
			}
		}
		for _, h := range e.Set {
			if h.Name != hostHeader {
				undo(h.Name)
				add = append(add, headerOption(h.Name, literal(h.Value), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
			}
		}
		for _, h := range e.Add {
			if h.Name != hostHeader {
				add = append(add, headerOption(h.Name, literal(h.Value), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
			}
		}
	}
	return add, remove
}

// setHost is the Host that edits set; empty when they set none.
func setHost(e *model.HeaderEdits) string {
	if e == nil {
		return ""
	}
	for _, h := range e.Set {
		if h.Name == hostHeader {
			return h.Value
		}
	}
	return ""
}

func headerOption(name, value string, how corev3.HeaderValueOption_HeaderAppendAction) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: how,
		// An empty value is a value.
		KeepEmptyValue: value == "",
	}
}

// literal keeps Envoy from reading a value as a format.
func literal(value string) string { return strings.ReplaceAll(value, "%", "%%") }

// startMark says when a request came, in seconds, as New Relic and others read it ("t=1700000000.123"). A client's
// own word does not count.
func startMark() *corev3.HeaderValueOption {
	return headerOption("x-request-start", "t=%START_TIME(%s.%3f)%", corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
}

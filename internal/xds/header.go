package xds

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"fairlead.dev/internal/model"
)

// hostHeader cannot be edited as a header in Envoy; setting it rewrites the host.
const hostHeader = "host"

// edits are header edits in Envoy's words. It removes first, then sets and adds in this
// order.
func edits(e *model.HeaderEdits) (add []*corev3.HeaderValueOption, remove []string) {
	if e == nil {
		return nil, nil
	}
	for _, h := range e.Set {
		if h.Name != hostHeader {
			add = append(add, headerOption(h.Name, literal(h.Value), corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD))
		}
	}
	for _, h := range e.Add {
		if h.Name != hostHeader {
			add = append(add, headerOption(h.Name, literal(h.Value), corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD))
		}
	}
	for _, name := range e.Remove {
		if name != hostHeader {
			remove = append(remove, name)
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

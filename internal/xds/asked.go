package xds

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// A line of the access log is written when the request is over. By then its headers are those that the
// backend got, with the path and the host of a rewrite. What the client asked for is put aside before.
const (
	askedFilter = "fairlead.asked"
	askedPath   = "fairlead.path"
	askedHost   = "fairlead.host"
	// So many bytes of them are written.
	pathLength = 1024
	hostLength = 256
)

// asked says that a request's path or host, put aside, is written; of one that Envoy answered before any
// filter saw it, the header, which nothing has changed.
func asked(key, header string, length int) string {
	return fmt.Sprintf(`%%COALESCE({"operators": [{"command": "FILTER_STATE", "param": "%s:PLAIN"}, {"command": "REQ", "param": "%s"}]}):%d%%`, key, header, length)
}

// putAside remembers what the client asked for. It comes before every filter that answers or changes
// requests.
func putAside() *hcmv3.HttpFilter {
	value := func(key, header string, length int) *statev3.FilterStateValue {
		return &statev3.FilterStateValue{
			Key:        &statev3.FilterStateValue_ObjectKey{ObjectKey: key},
			FactoryKey: "envoy.string",
			Value: &statev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
				Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: &corev3.DataSource{
					Specifier: &corev3.DataSource_InlineString{InlineString: fmt.Sprintf("%%REQ(%s):%d%%", header, length)},
				}},
				OmitEmptyValues: true,
			}},
			SkipIfEmpty: true,
		}
	}
	return httpFilter(askedFilter, &setstatev3.Config{OnRequestHeaders: []*statev3.FilterStateValue{
		value(askedPath, ":PATH", pathLength), value(askedHost, ":AUTHORITY", hostLength),
	}})
}

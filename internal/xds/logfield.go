package xds

import (
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	celformatv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/formatter/cel/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// accessFields are what a line of the access log may say, and Envoy's command for it. What clients say is
// cut: with HTTP/2 they send 60 KiB again by three bytes, and every time it would be written.
var accessFields = map[string]string{
	"time":              "%START_TIME%",
	"client":            "%DOWNSTREAM_REMOTE_ADDRESS%",
	"listener":          "%DOWNSTREAM_LOCAL_ADDRESS%",
	"server_name":       "%REQUESTED_SERVER_NAME%",
	"tls_version":       "%DOWNSTREAM_TLS_VERSION%",
	"tls_cipher":        "%DOWNSTREAM_TLS_CIPHER%",
	"client_subject":    "%DOWNSTREAM_PEER_SUBJECT%",
	"method":            "%REQ(:METHOD):32%",
	"host":              asked(askedHost, ":AUTHORITY", hostLength),
	"path":              asked(askedPath, ":PATH", pathLength),
	"protocol":          "%PROTOCOL%",
	"status":            "%RESPONSE_CODE%",
	"grpc_status":       "%GRPC_STATUS_NUMBER%",
	"flags":             "%RESPONSE_FLAGS%",
	"details":           "%RESPONSE_CODE_DETAILS%",
	"bytes_in":          "%BYTES_RECEIVED%",
	"bytes_out":         "%BYTES_SENT%",
	"duration_ms":       "%DURATION%",
	"backend":           "%UPSTREAM_HOST%",
	"group":             "%UPSTREAM_CLUSTER_RAW%",
	"route":             "%ROUTE_NAME%",
	"owner":             computed(ownerOfName),
	"decision":          "", // one for requests, another for connections
	"attempts":          "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
	"request_id":        "%REQ(X-REQUEST-ID):128%",
	"trace_id":          "%TRACE_ID%",
	"user_agent":        computed(printable(`request.headers["user-agent"]`, textLength)),
	"transport_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
}

// textLength bounds what others write into a field, characters.
const textLength = 512

// The owner of a route is in the route's name (model.Route), and Envoy takes it from there when it writes a line: it costs a
// route no memory (ADR 61). A request without a route has none.
const ownerOfName = `xds.route_name.split("/", 4)[0] + " " + xds.route_name.split("/", 4)[1] + "/" + xds.route_name.split("/", 4)[2]`

// computed is a command for the value of an expression (CEL).
func computed(expression string) string { return "%CEL(" + expression + ")%" }

// formatters let expressions make texts. Envoy 1.40 has the field cel_config (1) for that; the Go type does not have it yet.
func formatters() []*corev3.TypedExtensionConfig {
	cel := &celformatv3.Cel{}
	config, err := proto.Marshal(&corev3.CelExpressionConfig{EnableStringConcat: true, EnableStringFunctions: true, EnableStringConversion: true})
	if err != nil {
		panic(err) // three booleans
	}
	cel.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), config))
	return []*corev3.TypedExtensionConfig{{Name: "envoy.formatter.cel", TypedConfig: pack(cel)}}
}

// responseFlags are the bits of response.flags, in the order of Envoy's ResponseFlag (stream_info.h).
var responseFlags = []string{
	"LH", "UH", "UT", "LR", "UR", "UF", "UC", "UO", "NR", "DI", "FI", "RL", "UAEX", "RLSE", "DC", "URX",
	"SI", "IH", "DPE", "UMSDR", "RFCF", "NFCF", "DT", "UPE", "NC", "OM", "DF", "DO", "DR",
}

// decided are further reasons for the access log alone: nobody reads an answer to these requests.
var decided = []reason{
	{flags: []string{"DC", "DR"}, text: "the client left"},
	{flags: []string{"DPE"}, text: "the request is malformed"},
	{flags: []string{"SI", "DT", "UMSDR"}, text: "the request took too long"},
	{when: `response.code_details == "ext_authz_denied"`, text: "the authorization service refused the request"},
}

// decision says in words what became of a request: what answered it, and if no backend did, why. It has the words that the
// client was told, if the proxy told it something.
func decision() string {
	var b strings.Builder
	b.WriteString(`response.code_details == "via_upstream" ? "the backend answered" : response.code_details == "direct_response" ? (`)
	for _, status := range []int{404, 500, 503} {
		fmt.Fprintf(&b, `response.code == %d ? %q : `, status, fixedReasons[uint32(status)])
	}
	b.WriteString(`response.code >= 300 && response.code < 400 ? "the route redirects" : "the route answers")`)
	for _, r := range append(append([]reason{}, reasons...), decided...) {
		fmt.Fprintf(&b, " : %s ? %q", r.expression(), r.text)
	}
	b.WriteString(` : response.code_details`)
	return b.String()
}

// connectionDecision says the same of a connection of bytes, which has flags only.
func connectionDecision() string {
	var b strings.Builder
	b.WriteString(`response.flags == 0 ? "a backend was connected"`)
	for _, r := range append(append([]reason{}, reasons...), decided...) {
		if len(r.flags) > 0 {
			fmt.Fprintf(&b, " : %s ? %q", r.expression(), r.text)
		}
	}
	b.WriteString(` : "the connection ended"`)
	return b.String()
}

// expression is the condition of a reason.
func (r reason) expression() string {
	if len(r.flags) == 0 {
		return r.when
	}
	var bits []string
	for _, f := range r.flags {
		for i, known := range responseFlags {
			if f == known {
				bits = append(bits, "response.flags / "+strconv.Itoa(1<<i)+" % 2 == 1")
			}
		}
	}
	return strings.Join(bits, " || ")
}

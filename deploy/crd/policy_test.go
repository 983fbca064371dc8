package crd_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	schemavalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/crd"
)

// What one rule and all rules of an object may cost in an API server.
const (
	callCost   = 1_000_000
	objectCost = 10_000_000
)

// schemaOf is the schema of a definition, as an API server reads it.
func schemaOf(t *testing.T, file string) (*apiextensions.JSONSchemaProps, *structuralschema.Structural) {
	t.Helper()
	raw, err := fs.ReadFile(crd.Fairlead(), file)
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &definition); err != nil {
		t.Fatal(err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&definition)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
	var internal apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&definition, &internal, nil); err != nil {
		t.Fatal(err)
	}
	// With the costs that rules may have, and whether they can be read.
	for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
		if !strings.HasPrefix(problem.Field, "status.") {
			t.Errorf("%s: %v", file, problem)
		}
	}
	schema := internal.Spec.Validation
	if schema == nil {
		schema = internal.Spec.Versions[0].Schema
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return schema.OpenAPIV3Schema, structural
}

// TestPoliciesAreChecked holds that the API refuses what policies cannot say, and says what
// to do instead.
func TestPoliciesAreChecked(t *testing.T) {
	const (
		gateway = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: web}], "
		service = "targetRefs: [{group: '', kind: Service, name: web}], "
	)
	for _, c := range []struct{ kind, spec, want string }{
		{"routepolicies", gateway + "rateLimit: {requests: 5}", ""},
		{"routepolicies", gateway + "addresses: {allow: [10.0.0.0/8, '2001:db8::1'], deny: [10.1.1.1]}, maxRequestBytes: 10", ""},
		{"routepolicies", gateway + "authorization: {service: {name: auth, port: 80}, protocol: HTTP, http: {pathPrefix: /check, requestHeaders: [X-Token]}}", ""},
		{"routepolicies", gateway + "globalRateLimit: {service: {name: l, port: 80}, domain: edge, descriptor: [{key: a, header: X-A}, {key: b, clientAddress: true}, {key: c, value: v}]}", ""},
		{"routepolicies", "targetRefs: [{group: contour.heptio.com, kind: IngressRoute, name: web}], maxRequestBytes: 1", ""},
		{"routepolicies", gateway + "compression: {}", ""},
		{"routepolicies", gateway + "compression: {algorithms: [zstd, br], minBytes: 100, contentTypes: [text/html, application/ld+json]}, grpcWeb: true", ""},
		{"routepolicies", gateway + "compression: {disabled: true}, grpcWeb: false", ""},
		{"routepolicies", gateway + "compression: {disabled: true, minBytes: 100}", "disabled excludes the other fields"},
		{"routepolicies", gateway + "compression: {algorithms: [deflate]}", "supported values"},
		{"routepolicies", gateway + "compression: {algorithms: []}", "should have at least 1 items"},
		{"routepolicies", gateway + "compression: {contentTypes: [text]}", "should match"},
		{"routepolicies", gateway + "compression: {contentTypes: [Application/gRPC-web]}", "gRPC clients and servers compress"},
		{"routepolicies", "targetRefs: []" + ", maxRequestBytes: 1", "should have at least 1 items"},
		{"routepolicies", strings.TrimSuffix(gateway, ", "), "set at least one of rateLimit"},
		{"routepolicies", "targetRefs: [{group: '', kind: Service, name: web}], maxRequestBytes: 1", "targets of a RoutePolicy are Gateway"},
		{"routepolicies", "targetRefs: [{group: contour.heptio.com, kind: IngressRoute, name: web, sectionName: a}], maxRequestBytes: 1", "leave sectionName out"},
		{"routepolicies", "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: a}, {group: gateway.networking.k8s.io, kind: Gateway, name: a}], maxRequestBytes: 1", "name each target once"},
		{"routepolicies", gateway + "rateLimit: {requests: 5, per: 1ms}", "must be from 50ms to 24h"},
		{"routepolicies", gateway + "rateLimit: {requests: 5, per: soon}", "should match"},
		{"routepolicies", gateway + "addresses: {allow: [10.0.0.300]}", "must be an address like 192.0.2.7"},
		{"routepolicies", gateway + "addresses: {}", "set allow, deny or both"},
		{"routepolicies", gateway + "authorization: {service: {name: auth, port: 80}, http: {pathPrefix: /check}}", "http is for protocol HTTP"},
		{"routepolicies", gateway + "globalRateLimit: {service: {name: l, port: 80}, domain: edge, descriptor: [{key: a}]}", "set exactly one of header"},
		{"routepolicies", gateway + "globalRateLimit: {service: {name: l, port: 80}, domain: edge, descriptor: [{key: a, header: b, value: c}]}", "set exactly one of header"},
		{"routepolicies", gateway + "errorPages: [{statuses: [503, 4xx], of: All, contentType: text/plain, body: a}]", ""},
		{"routepolicies", gateway + "errorPages: [{statuses: [200], body: a}]", "must be from 400 to 599, or 4xx or 5xx"},
		{"routepolicies", gateway + "errorPages: [{statuses: ['503'], body: a}]", "must be from 400 to 599, or 4xx or 5xx"},
		{"routepolicies", gateway + "errorPages: [{statuses: [503], of: Some, body: a}]", "supported values"},
		{"routepolicies", gateway + "errorPages: [{statuses: [503], body: " + strings.Repeat("a", 4097) + "}]", "4096 characters together"},
		{"clientpolicies", gateway + "errorPages: [{statuses: [503], body: " + strings.Repeat("a", 16385) + "}]", "may not be more than 16384"},
		{"clientpolicies", gateway + "errorPages: [" + strings.Repeat("{statuses: [503], body: "+strings.Repeat("a", 11000)+"},", 3) + "]", "32768 characters together"},
		{"clientpolicies", gateway + "forwarded: {host: true, port: false}, errorPages: [{statuses: [404], body: a}]", ""},
		{"clientpolicies", "targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: fairlead}], trustedHops: 0", ""},
		{"clientpolicies", gateway + "accessLog: {fields: [status, host]}, timeouts: {headers: 5s}, tls: {minVersion: '1.3'}", ""},
		{"clientpolicies", gateway + "accessLog: {destination: OTLP, collector: {name: otel, port: 4317}}, tracing: {collector: {name: otel, port: 4317}, samplePercent: '0.5'}", ""},
		{"clientpolicies", gateway + "tracing: {collector: {name: otel, port: 4317}, samplePercent: 100}", ""},
		{"clientpolicies", gateway + "tracing: {collector: {name: otel, port: 4317}, samplePercent: 101}", "must be from 0 to 100"},
		{"clientpolicies", gateway + "tracing: {collector: {name: otel, port: 4317}, samplePercent: '100.5'}", "must be from 0 to 100"},
		{"clientpolicies", gateway + "accessLog: {destination: OTLP}", "collector must be set"},
		{"clientpolicies", gateway + "accessLog: {collector: {name: otel, port: 4317}}", "collector must be set"},
		{"clientpolicies", gateway + "accessLog: {destination: 'Off', errorsOnly: true}", "leave them out"},
		{"clientpolicies", gateway + "accessLog: {fields: [weather]}", "supported values"},
		{"routepolicies", gateway + "accessLog: {requests: None}", ""},
		{"routepolicies", gateway + "accessLog: {samplePercent: '0.5'}", ""},
		{"routepolicies", gateway + "accessLog: {}", "set either requests or samplePercent"},
		{"routepolicies", gateway + "accessLog: {requests: All, samplePercent: 1}", "set either requests or samplePercent"},
		{"routepolicies", gateway + "accessLog: {requests: Some}", "supported values"},
		{"clientpolicies", gateway + "accessLog: {template: '{time} {status}', samplePercent: '0.5'}", ""},
		{"clientpolicies", gateway + "accessLog: {template: '{time}', fields: [status]}", "replaces fields"},
		{"clientpolicies", gateway + "accessLog: {template: '{time}', destination: OTLP, collector: {name: otel, port: 4317}}", "template is for destination File"},
		{"clientpolicies", gateway + "accessLog: {samplePercent: 1, errorsOnly: true}", "errorsOnly means samplePercent 0"},
		{"clientpolicies", gateway + "accessLog: {samplePercent: 101}", "must be from 0 to 100"},
		{"clientpolicies", gateway + "accessLog: {destination: 'Off', samplePercent: 1}", "leave them out"},
		{"clientpolicies", gateway + "http3: true, acceptProxyProtocol: true", "HTTP/3 has no PROXY headers"},
		{"clientpolicies", gateway + "timeouts: {headers: 1ms}", "must be from 10ms to 1h"},
		{"clientpolicies", "targetRefs: [{group: gateway.networking.k8s.io, kind: GatewayClass, name: a, sectionName: b}]", "has no sections"},
		{"clientpolicies", "targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: a}]", "targets of a ClientPolicy"},
		{"backendpolicies", service + "outlierDetection: {}", ""},
		{"backendpolicies", service + "sendProxyProtocol: true, retryBudget: {percent: 20}, circuitBreaker: {maxRequests: 1}", ""},
		{"backendpolicies", strings.TrimSuffix(service, ", "), "set at least one of outlierDetection"},
		{"backendpolicies", service + "circuitBreaker: {}", "set at least one of maxConnections"},
		{"backendpolicies", service + "outlierDetection: {interval: 1ms}", "must be from 100ms to 1h"},
		{"backendpolicies", gateway + "sendProxyProtocol: true", "targets of a BackendPolicy are Services"},

		{"loadbalancerpolicies", service + "mode: DSRGeneve", ""},
		{"loadbalancerpolicies", gateway + "dataPlane: IPVS, scheduler: wlc, maxFlowsPerBackend: 100, mode: DSRL2", ""},
		{"loadbalancerpolicies", gateway + "dataPlane: NFTables, newFlowsPerSecond: 1, sourceRanges: [10.0.0.0/8, '2001:db8::1']", ""},
		{"loadbalancerpolicies", gateway + "dataPlane: IPVS, sourceRanges: [10.0.0.0/8]", "are for dataPlane XDP and NFTables"},
		{"loadbalancerpolicies", gateway + "dataPlane: IPVS, newFlowsPerSecond: 1", "are for dataPlane XDP and NFTables"},
		{"loadbalancerpolicies", service + "scheduler: wlc, sourceRanges: [10.0.0.0/8]", "a frontend has one data plane"},
		{"loadbalancerpolicies", service + "scheduler: mh, sourceRanges: [10.0.0.0/8]", ""},
		{"loadbalancerpolicies", service + "maxFlowsPerBackend: 5, newFlowsPerSecond: 1", "a frontend has one data plane"},
		{"loadbalancerpolicies", service + "dataPlane: NFTables, mode: DSRIPIP", "modes DSRIPIP and DSRL2 are for dataPlane XDP and IPVS"},
		{"loadbalancerpolicies", service + "quic: {serverIDOffset: 16, serverIDLength: 1}", "less than or equal to 15"},
		{"loadbalancerpolicies", "targetRefs: [{group: gateway.networking.k8s.io, kind: TCPRoute, name: a}, {group: gateway.networking.k8s.io, kind: UDPRoute, name: a}], panicThreshold: 0", ""},
		{"loadbalancerpolicies", service + "healthCheck: {type: UDP, send: AAE=, expect: AA==}, weights: [{address: 10.0.0.5, weight: 0}], quic: {serverIDLength: 8}", ""},
		{"loadbalancerpolicies", service + "healthCheck: {type: HTTP, path: /ok, codes: ['200', '300-399'], host: a.example.com, timeout: 2s}", ""},
		{"loadbalancerpolicies", strings.TrimSuffix(service, ", "), "set at least one field besides targetRefs"},
		{"loadbalancerpolicies", "targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: a}], mode: NAT", "targets of a LoadBalancerPolicy are Services"},
		{"loadbalancerpolicies", "targetRefs: [{group: '', kind: Service, name: a}, {group: '', kind: Service, name: a}], mode: NAT", "name each target once"},
		{"loadbalancerpolicies", service + "mode: Odd", "Unsupported value"},
		{"loadbalancerpolicies", service + "dataPlane: XDP, scheduler: wlc", "scheduler is for dataPlane IPVS"},
		{"loadbalancerpolicies", service + "dataPlane: NFTables, maxFlowsPerBackend: 1", "maxFlowsPerBackend is for dataPlane IPVS"},
		{"loadbalancerpolicies", service + "mode: DSRGeneve, scheduler: wrr", "a frontend has one data plane"},
		{"loadbalancerpolicies", service + "quic: {serverIDLength: 4}, maxFlowsPerBackend: 1", "a frontend has one data plane"},
		{"loadbalancerpolicies", service + "dataPlane: IPVS, quic: {serverIDLength: 4}", "quic is for dataPlane XDP"},
		{"loadbalancerpolicies", service + "dataPlane: NFTables, mode: DSRGeneve", "mode DSRGeneve is for dataPlane XDP"},
		{"loadbalancerpolicies", service + "quic: {serverIDOffset: 15, serverIDLength: 8}", "connection IDs have at most 20 bytes"},
		{"loadbalancerpolicies", service + "sourceRanges: [everybody]", "must be an address or a CIDR"},
		{"loadbalancerpolicies", service + "weights: [{address: x, weight: 1}]", "must be an address"},
		{"loadbalancerpolicies", service + "drainTime: 25h", "must be from 1s to 24h"},
		{"loadbalancerpolicies", service + "sessionAffinity: {timeout: 1ms}", "must be from 1s to 24h"},
		{"loadbalancerpolicies", service + "healthCheck: {type: TCP, path: /}", "path and codes are for types HTTP and HTTPS"},
		{"loadbalancerpolicies", service + "healthCheck: {type: TCP, host: a}", "host is for types HTTP"},
		{"loadbalancerpolicies", service + "healthCheck: {type: HTTP, service: a}", "service is for types GRPC and GRPCS"},
		{"loadbalancerpolicies", service + "healthCheck: {type: UDP}", "type UDP needs send"},
		{"loadbalancerpolicies", service + "healthCheck: {type: TCP, expect: AA==}", "send and expect are for type UDP only"},
		{"loadbalancerpolicies", service + "healthCheck: {type: TCP, timeout: 3s}", "timeout must not be longer than interval"},
		{"loadbalancerpolicies", service + "healthCheck: {type: HTTP, codes: ['2xx']}", "should match"},
	} {
		problems := judge(t, c.kind, c.spec)
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("%s {%s} is refused: %v", c.kind, c.spec, problems.ToAggregate())
		case c.want != "" && (len(problems) == 0 || !strings.Contains(problems.ToAggregate().Error(), c.want)):
			t.Errorf("%s {%s}: got %v, want %q", c.kind, c.spec, problems.ToAggregate(), c.want)
		}
	}
}

// judge is what an API server has against an object of a kind, in the plural.
func judge(t *testing.T, kind, spec string) field.ErrorList {
	t.Helper()
	props, structural := schemaOf(t, "fairlead.dev_"+kind+".yaml")
	encoded, err := yaml.YAMLToJSON([]byte("metadata: {name: x}\nspec: {" + spec + "}\n"))
	if err != nil {
		t.Fatalf("%s: %v", spec, err)
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		t.Fatal(err)
	}
	defaulting.Default(object, structural)
	validator, _, err := schemavalidation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	problems := schemavalidation.ValidateCustomResource(nil, object, validator)
	if len(problems) == 0 {
		rules, _ := cel.NewValidator(structural, true, callCost).Validate(context.Background(), nil, structural, object, nil, objectCost)
		problems = append(problems, rules...)
	}
	return problems
}

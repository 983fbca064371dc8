package policy

import (
	"reflect"
	"strings"
	"testing"

	"fairlead.dev/internal/model"
)

// A template is fields, headers and texts; what is wrong with one is said by name, and no header with credentials is logged.
func TestLogTemplates(t *testing.T) {
	parts, problem := logTemplate("{{{time}}} 100% {request.X-Tenant}\t{status}")
	want := []model.LogPart{{Text: "{"}, {Field: "time"}, {Text: "} 100% "}, {Request: "x-tenant"}, {Text: "\t"}, {Field: "status"}}
	if problem != "" || !reflect.DeepEqual(parts, want) {
		t.Errorf("got %v, %q; want %v", parts, problem, want)
	}
	for template, want := range map[string]string{
		"{stauts}":                      `"stauts"`,
		"%REQ(COOKIE)% {}":              `""`,
		"{request.Authorization}":       `"authorization" can hold credentials`,
		"{request.cookie}":              `"cookie" can hold credentials`,
		"{response.Set-Cookie}":         `"set-cookie" can hold credentials`,
		"{request.x-api-key}":           `"x-api-key" can hold credentials`,
		"{request.x-my-session-token}":  `"x-my-session-token" can hold credentials`,
		"{request.a b}":                 "not a valid header name",
		"{request.:path}":               "not a valid header name",
		"{request.}":                    "not a valid header name",
		"{tls.x}":                       "neither a field",
		"{status":                       `"{" without "}"`,
		"status}":                       `"}" without "{"`,
		"a\nb":                          "printable",
		"\u202e":                        "printable",
		strings.Repeat("x", 2049):       "at most 2048 bytes",
		strings.Repeat("{status}", 101): "at most 100",
	} {
		if parts, problem := logTemplate(template); parts != nil || !strings.Contains(problem, want) {
			t.Errorf("%.40q: %v, %q; want %s", template, parts, problem, want)
		}
	}
}

package model

// AccessLog is where a line a request goes.
type AccessLog struct {
	Off bool `json:"off,omitempty"`
	// Fields to write, as names of the documented set; empty is all.
	Fields []string `json:"fields,omitempty"`
	// Template makes lines of text; empty makes JSON.
	Template []LogPart `json:"template,omitempty"`
	// Collector takes them over OTLP (gRPC); empty writes lines to the machine's file.
	Collector GroupID `json:"collector,omitempty"`
	// Errors writes requests only that were answered 4xx or 5xx or not at all, and calls of gRPC that failed.
	Errors bool `json:"errors,omitempty"`
	// Percent of the other requests are written, too; 0 is all of them.
	Percent float64 `json:"percent,omitempty"`
}

// LogPart is a part of a template. Exactly one field is set.
type LogPart struct {
	Text string `json:"text,omitempty"`
	// Field is a name of the documented set.
	Field string `json:"field,omitempty"`
	// Request and Response are names of headers, in lower case.
	Request  string `json:"request,omitempty"`
	Response string `json:"response,omitempty"`
}

// LogShare says which requests of a route have a line in the access log, where its listener has one.
type LogShare struct {
	// None: not even failed ones.
	None bool `json:"none,omitempty"`
	// Percent of the requests that did not fail; those that failed always have a line.
	Percent float64 `json:"percent"`
}

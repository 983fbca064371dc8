package model

// ErrorPage is what clients are shown in place of errors.
type ErrorPage struct {
	// Statuses are sorted: "404", "5xx".
	Statuses    []string `json:"statuses"`
	ContentType string   `json:"contentType"`
	Body        string   `json:"body"`
	// Backends says that it stands in place of backends' answers, too.
	Backends bool `json:"backends,omitempty"`
}

// ErrorPages are pages, of which the first that has a status is shown.
type ErrorPages struct {
	Pages []ErrorPage `json:"pages"`
}

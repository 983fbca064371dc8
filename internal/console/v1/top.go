package v1

// Top is what proxies have answered within some seconds.
type Top struct {
	// Seconds between the two times at which proxies were asked.
	Seconds float64 `json:"seconds"`
	// Machines whose proxies answered both times, sorted.
	Machines []string `json:"machines"`
	// Total is the number of rows, of which Rows may be the first, and Rate the requests a second of all.
	Total int      `json:"total"`
	Rate  float64  `json:"rate"`
	Rows  []TopRow `json:"rows"`
}

// TopRow is what proxies have answered of one route, host, namespace or listener.
type TopRow struct {
	Name string `json:"name"`
	// Rate is requests a second, and Rates by the class of the status: none (the client left before an answer), 1xx to 5xx.
	Rate  float64    `json:"rate"`
	Rates [6]float64 `json:"rates"`
	// Requests since the proxies began.
	Requests uint64 `json:"requests"`
}

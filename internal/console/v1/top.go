package v1

// Top is what proxies have answered within some seconds.
type Top struct {
	// Sample is the number of the later time. Whoever names it as `after` is answered after the next.
	Sample uint64 `json:"sample,omitempty"`
	// Seconds between the two times at which proxies were asked.
	Seconds float64 `json:"seconds"`
	// Machines whose proxies answered both times, sorted.
	Machines []string `json:"machines"`
	// Total is the number of rows, of which Rows may be the first, and Rate the requests a second of all.
	Total int      `json:"total"`
	Rate  float64  `json:"rate"`
	Rows  []TopRow `json:"rows"`
}

// TopRow is what proxies have answered of one route, host, namespace, listener or upstream, or what flows a frontend or backend has.
type TopRow struct {
	Name string `json:"name"`
	// Rate is requests a second, and Rates by the class of the status: none (the client left before an answer), 1xx to 5xx. Of
	// frontends and their backends, Rate is new flows a second; of backends of measured groups, requests a second: Rates[5] failed, and
	// Rates[2] did not.
	Rate  float64    `json:"rate"`
	Rates [6]float64 `json:"rates"`
	// Requests since the proxies began, or new flows since the data planes did.
	Requests uint64 `json:"requests"`
	// P50 and P99 are times that half and 99 % of Timed requests did not exceed, in seconds. Timed is 0 where none is known. Of 1 request,
	// P50 says little, and so does P99 of fewer than 100.
	P50   float64 `json:"p50Seconds,omitempty"`
	P99   float64 `json:"p99Seconds,omitempty"`
	Timed uint64  `json:"timed,omitempty"`
	// Received and Sent are bytes a second from and to clients. Routes and hosts have none; frontends and backends have Received.
	Received float64 `json:"receivedBytes,omitempty"`
	Sent     float64 `json:"sentBytes,omitempty"`
	// InFlight are requests that a backend of a measured group has not ended, and FirstByte is the mean time until the first byte of
	// its answers, in seconds; 0: it has answered none.
	InFlight  uint64  `json:"inFlight,omitempty"`
	FirstByte float64 `json:"firstByteSeconds,omitempty"`
}

// Package cloud has what the sources of upstreams share: the Sink to which they give what they read, the classes of
// their errors, and an HTTP transport that no API can keep waiting or fill the memory of.
//
// It knows no API. Nothing here decides what an upstream's silence means.
//
// A source makes one Transport for an upstream and sends every request through it:
//
//	t := cloud.NewTransport(cloud.NewBase(tlsConfig, allow), cloud.TransportConfig{
//		RequestsPerSecond: int(spec.RequestsPerSecond),
//		AnswerBytes:       int64(spec.Limits.AnswerMiB) << 20,
//	})
//	client := t.Client()
//
// Errors of client.Do and of reading an answer contain an *Error (errors.As), so ReasonOf has their class. An answer
// with an error status is no error of the transport: Classify(nil, status) has its class.
//
// Files in reading order: sink.go (what a source gives), transport.go (requests within limits), answer.go (answers within
// limits), record.go (what one request met), counter.go, dial.go (addresses that are refused), backoff.go (pauses after failures),
// error.go (classes of errors), credentials.go (errors of files that may have secrets), allow.go (what credentials may contain).
package cloud

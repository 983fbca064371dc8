package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"fairlead.dev/internal/model"
	agentv1 "fairlead.dev/proto/agent/v1"
)

// TapFilter encodes a filter.
func TapFilter(f model.TapFilter) *agentv1.TapFilter {
	return &agentv1.TapFilter{
		Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, Host: f.Host, Path: f.Path, StatusFrom: f.StatusFrom, StatusTo: f.StatusTo,
		Header: f.Header, Value: f.Value, SlowerThan: durationpb.New(f.SlowerThan),
	}
}

// TapFilterOf decodes a filter.
func TapFilterOf(f *agentv1.TapFilter) model.TapFilter {
	return model.TapFilter{
		Kind: f.GetKind(), Namespace: f.GetNamespace(), Name: f.GetName(), Host: f.GetHost(), Path: f.GetPath(),
		StatusFrom: f.GetStatusFrom(), StatusTo: f.GetStatusTo(), Header: f.GetHeader(), Value: f.GetValue(), SlowerThan: f.GetSlowerThan().AsDuration(),
	}
}

// TapRecord encodes what a machine says of a request.
func TapRecord(r model.TapRecord, taps []uint64) *agentv1.TapRecord {
	m := &agentv1.TapRecord{
		Taps: taps, At: timestamppb.New(r.At), Route: r.Route, Group: string(r.Group), Backend: r.Backend, Client: r.Client, Method: r.Method,
		Host: r.Host, Path: r.Path, Status: r.Status, Details: r.Details, Duration: durationOf(r.Seconds), Attempts: r.Attempts,
		Received: r.Received, Sent: r.Sent, RequestId: r.RequestID, Headers: tapHeaders(r.Headers), ResponseHeaders: tapHeaders(r.ResponseHeaders),
	}
	if r.FirstByte > 0 {
		m.FirstByte = durationOf(r.FirstByte)
	}
	return m
}

// TapRecordOf decodes what a machine says of a request.
func TapRecordOf(m *agentv1.TapRecord) model.TapRecord {
	return model.TapRecord{
		At: timeOf(m.GetAt()), Route: m.GetRoute(), Group: model.GroupID(m.GetGroup()), Backend: m.GetBackend(), Client: m.GetClient(), Method: m.GetMethod(),
		Host: m.GetHost(), Path: m.GetPath(), Status: m.GetStatus(), Details: m.GetDetails(), Seconds: m.GetDuration().AsDuration().Seconds(),
		FirstByte: m.GetFirstByte().AsDuration().Seconds(), Attempts: m.GetAttempts(), Received: m.GetReceived(), Sent: m.GetSent(), RequestID: m.GetRequestId(),
		Headers: tapHeadersOf(m.GetHeaders()), ResponseHeaders: tapHeadersOf(m.GetResponseHeaders()),
	}
}

func durationOf(seconds float64) *durationpb.Duration {
	return durationpb.New(time.Duration(seconds * float64(time.Second)))
}

func tapHeaders(headers map[string]string) []*agentv1.TapHeader {
	var list []*agentv1.TapHeader
	for name, value := range headers {
		list = append(list, &agentv1.TapHeader{Name: name, Value: value})
	}
	return list
}

func tapHeadersOf(list []*agentv1.TapHeader) map[string]string {
	headers := make(map[string]string, len(list))
	for _, h := range list {
		headers[h.GetName()] = h.GetValue()
	}
	return headers
}

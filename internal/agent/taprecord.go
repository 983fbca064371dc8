package agent

import (
	"maps"
	"net"
	"strconv"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	datav3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"fairlead.dev/internal/model"
)

// tapRecord is a request as the proxy has recorded it, not redacted yet.
func tapRecord(e *datav3.HTTPAccessLogEntry) model.TapRecord {
	common, request, response := e.GetCommonProperties(), e.GetRequest(), e.GetResponse()
	path := request.GetOriginalPath()
	if path == "" {
		path = request.GetPath()
	}
	r := model.TapRecord{
		At: common.GetStartTime().AsTime(), Route: common.GetRouteName(), Group: model.GroupID(common.GetCustomTags()[model.TapGroup]), Backend: hostPort(common.GetUpstreamRemoteAddress()),
		Client: hostPort(common.GetDownstreamRemoteAddress()), Method: request.GetRequestMethod().String(), Host: request.GetAuthority(), Path: path,
		Status: response.GetResponseCode().GetValue(), Details: response.GetResponseCodeDetails(), Seconds: seconds(common.GetDuration(), common.GetTimeToLastDownstreamTxByte()),
		Attempts: common.GetUpstreamRequestAttemptCount(), Received: request.GetRequestBodyBytes(), Sent: response.GetResponseBodyBytes(), RequestID: request.GetRequestId(),
		Headers: map[string]string{}, ResponseHeaders: map[string]string{},
	}
	if request.GetRequestMethod() == corev3.RequestMethod_METHOD_UNSPECIFIED {
		r.Method = "" // there was no request, or its method is none that Envoy has a name for
	}
	if first := common.GetTimeToFirstUpstreamRxByte(); first != nil {
		r.FirstByte = first.AsDuration().Seconds()
	}
	maps.Copy(r.Headers, request.GetRequestHeaders())
	maps.Copy(r.ResponseHeaders, response.GetResponseHeaders())
	for name, value := range map[string]string{
		"user-agent": request.GetUserAgent(), "referer": request.GetReferer(), "x-forwarded-for": request.GetForwardedFor(),
	} {
		if value != "" {
			r.Headers[name] = value
		}
	}
	return r
}

// seconds are those of the first time that is given.
func seconds(times ...*durationpb.Duration) float64 {
	for _, t := range times {
		if t != nil {
			return t.AsDuration().Round(time.Microsecond).Seconds()
		}
	}
	return 0
}

func hostPort(a *corev3.Address) string {
	socket := a.GetSocketAddress()
	if socket == nil {
		return a.GetPipe().GetPath()
	}
	return net.JoinHostPort(socket.GetAddress(), strconv.Itoa(int(socket.GetPortValue())))
}

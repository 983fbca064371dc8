package contour

import (
	"strconv"
	"strings"
	"time"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/field"
)

// healthCheck reads a health check and notes what is wrong with it.
func (c *compiler) healthCheck(o *contourv1beta1.HealthCheck, service snapshot.Name, path string) *model.HealthCheck {
	if problem := field.PathProblem(strings.SplitN(o.Path, "?", 2)[0]); problem != "" {
		c.fail(path+".path", problem)
	} else if !field.Printable(o.Path) || len(o.Path) > field.PathLimit {
		c.fail(path+".path", field.Quote(o.Path)+" must not have spaces or control characters, nor more than "+strconv.Itoa(field.PathLimit)+" characters")
	}
	if o.Host != "" && (!field.Printable(o.Host) || len(o.Host) > 260) {
		c.fail(path+".host", field.Quote(o.Host)+" is not a valid host name")
	}
	for _, f := range []struct {
		name         string
		value, limit int64
	}{
		{"intervalSeconds", o.IntervalSeconds, healthCheckLimit},
		{"timeoutSeconds", o.TimeoutSeconds, healthTimeoutLimit},
		{"unhealthyThresholdCount", o.UnhealthyThresholdCount, healthCheckLimit},
		{"healthyThresholdCount", o.HealthyThresholdCount, healthCheckLimit},
	} {
		if f.value < 0 || f.value > f.limit {
			c.fail(path+"."+f.name, strconv.FormatInt(f.value, 10)+" must be in the range 0-"+strconv.FormatInt(f.limit, 10))
		}
	}
	return makeHealthCheck(o, service)
}

const (
	// healthCheckLimit bounds seconds and counts: a day.
	healthCheckLimit = 86_400
	// healthTimeoutLimit bounds a timeout, in seconds: a backend that hangs holds one of its checkers' sockets for so
	// long, and is known to be dead no sooner.
	healthTimeoutLimit = 10
)

func makeHealthCheck(o *contourv1beta1.HealthCheck, service snapshot.Name) *model.HealthCheck {
	or := func(v, otherwise, limit int64) int64 {
		if v == 0 {
			return otherwise
		}
		return min(max(v, 0), limit)
	}
	h := &model.HealthCheck{
		Path:      o.Path,
		Host:      o.Host,
		Interval:  time.Duration(or(o.IntervalSeconds, 5, healthCheckLimit)) * time.Second,
		Timeout:   time.Duration(or(o.TimeoutSeconds, 2, healthTimeoutLimit)) * time.Second,
		Unhealthy: uint32(or(o.UnhealthyThresholdCount, 3, healthCheckLimit)),
		Healthy:   uint32(or(o.HealthyThresholdCount, 2, healthCheckLimit)),
	}
	if h.Host == "" {
		h.Host = service.Name
	}
	return h
}

package route

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strconv"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// gatewayDuration is a duration of the Gateway API (GEP-2257).
var gatewayDuration = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

// duration reads a duration; nothing is none.
func (c *compiler) duration(text *gatewayv1.Duration, path string) (d time.Duration, said bool) {
	if text == nil {
		return 0, false
	}
	d, err := time.ParseDuration(string(*text))
	if err != nil || !gatewayDuration.MatchString(string(*text)) {
		c.refuse(path, field.Quote(string(*text))+` is not a duration like "10s" or "1m500ms"`)
		return 0, false
	}
	return min(d, field.Longest), true
}

// timeouts reads the bounds of requests. Without one of the whole request the tries bound
// it; silence would end a try that may last longer.
func (c *compiler) timeouts(forward *model.Forward, o *gatewayv1.HTTPRouteTimeouts, path string) {
	if o == nil {
		return
	}
	request, whole := c.duration(o.Request, path+".request")
	try, each := c.duration(o.BackendRequest, path+".backendRequest")
	if whole && each && request > 0 && try > request {
		c.refuse(path+".backendRequest", field.Quote(string(*o.BackendRequest))+" must not be longer than request, which is "+field.Quote(string(*o.Request)))
	}
	switch {
	case whole && request > 0:
		forward.Timeout = request
	case whole || each:
		forward.Timeout = model.Never
	}
	forward.TryTimeout = try
}

const (
	// retryAttempts is how often a request is tried again when the route does not say.
	retryAttempts = 1
	// retryLimit bounds what it may say.
	retryLimit = 100
)

func (c *compiler) retry(forward *model.Forward, o *gatewayv1.HTTPRouteRetry, path string) {
	if o == nil {
		return
	}
	r := &model.Retry{Attempts: retryAttempts}
	if o.Attempts != nil {
		if *o.Attempts < 1 || *o.Attempts > retryLimit {
			c.refuse(path+".attempts", strconv.Itoa(*o.Attempts)+" must be in the range 1-"+strconv.Itoa(retryLimit))
		} else {
			r.Attempts = uint32(*o.Attempts)
		}
	}
	for i, code := range o.Codes {
		if code < 400 || code > 599 {
			c.refuse(field.At(path+".codes", i), strconv.Itoa(int(code))+" must be in the range 400-599")
			continue
		}
		r.Codes = append(r.Codes, uint32(code))
	}
	slices.Sort(r.Codes)
	r.Codes = slices.Compact(r.Codes)
	r.Backoff, _ = c.duration(o.Backoff, path+".backoff")
	forward.Retry = r
}

// session reads what keeps a client at one backend (GEP-1619).
func (c *compiler) session(forward *model.Forward, s *ruleSpec) {
	o, path := s.session, s.path+".sessionPersistence"
	if o == nil {
		return
	}
	sticky := &model.Sticky{Name: field.Deref(o.SessionName)}
	if sticky.Name == "" {
		// Two rules must not read each other's cookies.
		sum := sha256.Sum256([]byte(c.owner.String() + " " + s.ruleKey()))
		sticky.Name = "session-" + hex.EncodeToString(sum[:6])
	}
	if len(sticky.Name) > 128 || !field.IsToken(sticky.Name) {
		c.refuse(path+".sessionName", field.Quote(sticky.Name)+" must have 1 to 128 letters, digits and hyphens")
	}
	lifetime, said := c.duration(o.AbsoluteTimeout, path+".absoluteTimeout")
	permanent := false
	if o.CookieConfig != nil && o.CookieConfig.LifetimeType != nil {
		switch kind := *o.CookieConfig.LifetimeType; kind {
		case gatewayv1.SessionCookieLifetimeType:
		case gatewayv1.PermanentCookieLifetimeType:
			permanent = true
		default:
			c.refuse(path+".cookieConfig.lifetimeType", field.Quote(string(kind))+" is unknown")
		}
	}
	kind := gatewayv1.CookieBasedSessionPersistence
	if o.Type != nil {
		kind = *o.Type
	}
	switch kind {
	case gatewayv1.CookieBasedSessionPersistence:
		sticky.Path = s.cookiePath
	case gatewayv1.HeaderBasedSessionPersistence:
		sticky.Header = true
		if o.CookieConfig != nil {
			c.refuse(path+".cookieConfig", "must not be set with type Header")
		}
	default:
		c.refuse(path+".type", field.Quote(string(kind))+" is unknown")
	}
	switch {
	case permanent && (!said || lifetime == 0):
		c.refuse(path+".absoluteTimeout", "must be set with lifetimeType Permanent")
	case permanent && lifetime < time.Second:
		c.refuse(path+".absoluteTimeout", field.Quote(string(*o.AbsoluteTimeout))+" must be at least 1s: cookies live for whole seconds")
	case !permanent && said && lifetime > 0:
		c.refuse(path+".absoluteTimeout", "is supported with cookies of lifetimeType Permanent only")
	case permanent:
		sticky.Lifetime = lifetime
	}
	forward.Sticky = sticky
}

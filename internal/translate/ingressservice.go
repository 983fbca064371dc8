package translate

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// maxServices bounds the services of a route, or of a tcpproxy: what is compiled of them is all in one resource,
// which at shared listeners others have a part of.
const maxServices = 128

// fewServices leaves out what is more than a route may have, and says so.
func (c *ingressCompiler) fewServices(services []contourv1beta1.Service, path string) []contourv1beta1.Service {
	if len(services) <= maxServices {
		return services
	}
	c.fail(path, strconv.Itoa(len(services))+" are too many: at most "+strconv.Itoa(maxServices))
	return services[:maxServices]
}

// weights are the services' shares: equal when none says one, else those unset
// are 0. Nil when they cannot be.
func (c *ingressCompiler) weights(services []contourv1beta1.Service, path string) []uint32 {
	if len(services) == 0 {
		return nil
	}
	weights := make([]uint32, len(services))
	said, sum, bad := false, uint64(0), false
	for i, s := range services {
		if s.Weight == nil {
			continue
		}
		said = true
		if *s.Weight < 0 || *s.Weight > weightLimit {
			c.fail(at(path, i)+".weight", strconv.Itoa(int(*s.Weight))+" must be in the range 0-"+strconv.Itoa(weightLimit))
			bad = true
			continue
		}
		weights[i] = uint32(*s.Weight)
		sum += uint64(weights[i])
	}
	switch {
	case !said:
		for i := range weights {
			weights[i] = 1
		}
	case bad:
		return nil
	case sum == 0:
		c.fail(path, "all weights are 0: at least one service must have a weight above 0")
		return nil
	}
	return weights
}

func (c *ingressCompiler) service(s *contourv1beta1.Service, path string) (port servicePort, ok bool) {
	if s.Name == "" {
		c.fail(path+".name", "must be specified")
		return port, false
	}
	if s.Port < 1 || s.Port > 65535 {
		c.fail(path+".port", "service "+quote(s.Name)+": port must be in the range 1-65535")
		return port, false
	}
	port, fault, problem := c.t.backend.findPort(c.ctx, snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}, s.Port)
	switch fault {
	case serviceFine:
		for _, note := range port.unread {
			c.fact.notes = append(c.fact.notes, path+".name: Service "+quote(s.Name)+": "+note)
		}
		if port.undrained != "" {
			c.fact.notes = append(c.fact.notes, path+".name: Service "+quote(s.Name)+": "+port.undrained)
		}
		if port.refusal != "" && !c.noted[s.Name] {
			c.noted[s.Name] = true
			c.fact.notes = append(c.fact.notes, path+".name: Service "+quote(s.Name)+": "+port.refusal)
		}
		return port, true
	case portMissing, portProtocol:
		c.fail(path+".port", problem)
	default:
		c.fail(path+".name", problem)
	}
	return port, false
}

// group is the group of a service that was found.
func (c *ingressCompiler) group(service string, port servicePort, o groupOptions, path string) (model.BackendGroup, bool) {
	group, fault, problem := c.t.backend.makeGroup(c.ctx, snapshot.Name{Namespace: c.name.Namespace, Name: service}, port, o)
	if fault != serviceFine {
		c.fail(path+".port", problem)
	}
	return group, fault == serviceFine
}

// balanceOf reads a strategy; one that is unknown is round robin, as in Contour.
func balanceOf(strategy string) model.Balance {
	switch strategy {
	case "WeightedLeastRequest":
		return model.BalanceLeastRequest
	case "Random":
		return model.BalanceRandom
	case "Cookie":
		return model.BalanceCookie
	default:
		return model.BalanceRoundRobin
	}
}

// upstream says how the backends of a service are spoken to: as annotations of the Service
// ask for, and, where validation is there, over TLS and not without.
func (c *ingressCompiler) upstream(s *contourv1beta1.Service, port servicePort, path string) (model.BackendProtocol, *model.BackendTLS) {
	var protocol model.BackendProtocol
	if port.upstream == upstreamH2 || port.upstream == upstreamH2C {
		protocol = model.BackendHTTP2
	}
	if s.UpstreamValidation != nil {
		tls := c.validation(s.UpstreamValidation, path+".validation")
		if port.upstream == upstreamH2C {
			c.fail(path+".validation", "Service "+quote(s.Name)+" is annotated "+upstreamAnnotations[0]+upstreamH2C+", so that its backends speak clear text")
		}
		return protocol, tls
	}
	service := snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}
	if (port.upstream == upstreamTLS || port.upstream == upstreamH2) && c.t.backend.policyOf(c.ctx, service, port.name) == nil {
		return protocol, &model.BackendTLS{Unverified: true}
	}
	return protocol, nil
}

// validation reads which certificate backends must show; nil when it cannot be told.
func (c *ingressCompiler) validation(o *contourv1beta1.UpstreamValidation, path string) *model.BackendTLS {
	tls := &model.BackendTLS{ServerName: strings.ToLower(o.SubjectName)}
	ok := true
	fail := func(field, problem string) {
		c.fail(path+field, problem)
		ok = false
	}
	switch {
	case o.SubjectName == "":
		fail(".subjectName", "must be specified")
	case strings.Contains(o.SubjectName, "://"):
		if u, err := url.Parse(o.SubjectName); err != nil || u.Scheme == "" || !printable(o.SubjectName) {
			fail(".subjectName", quote(o.SubjectName)+" is neither a DNS name nor a URI")
		}
		tls.ServerName, tls.Names = "", []model.AltName{{URI: o.SubjectName}}
	default:
		if problem := hostProblem(tls.ServerName, false); problem != "" {
			fail(".subjectName", problem)
		}
	}
	name := snapshot.Name{Namespace: c.name.Namespace, Name: o.CACertificate}
	switch {
	case o.CACertificate == "":
		fail(".caSecret", "must be specified")
	case strings.Contains(o.CACertificate, "/"):
		fail(".caSecret", quote(o.CACertificate)+" must be the name of a Secret in namespace "+name.Namespace)
	default:
		f := c.t.tls.authorities.Get(c.ctx, authorityKey{snapshot.KindSecret, name})
		if f.problem != "" {
			fail(".caSecret", "Secret "+name.String()+" "+f.problem)
		} else {
			tls.Authorities = []model.AuthorityID{f.authority.ID}
		}
	}
	if !ok {
		return nil
	}
	return tls
}

// What annotations of Services say of a port's backends, as Contour has it. Of several the
// last in this order counts.
const (
	upstreamH2  = "h2"  // HTTP/2 over TLS
	upstreamH2C = "h2c" // HTTP/2 in clear text
	upstreamTLS = "tls" // HTTP/1.1 over TLS
)

// contourPrefixes begin the annotations of Contour.
var contourPrefixes = [...]string{"contour.heptio.com/", "projectcontour.io/"}

// upstreamAnnotations are what the annotations begin with; their values list names and
// numbers of ports.
var upstreamAnnotations = [...]string{"contour.heptio.com/upstream-protocol.", "projectcontour.io/upstream-protocol."}

// limitsOf are what annotations of a Service let a machine send to it at once, as Contour has it: nil where they
// name nothing. Contour takes a text that is no number for none; unread says that.
func limitsOf(annotations map[string]string) (limits *model.BackendLimits, unread []string) {
	var l model.BackendLimits
	for _, a := range []struct {
		name  string
		limit *uint32
	}{{"max-connections", &l.MaxConnections}, {"max-pending-requests", &l.MaxPending}, {"max-requests", &l.MaxRequests}, {"max-retries", &l.MaxRetries}} {
		for _, prefix := range contourPrefixes {
			text := annotations[prefix+a.name]
			if text == "" || *a.limit > 0 {
				continue
			}
			n, err := strconv.ParseUint(text, 10, 32)
			if *a.limit = uint32(n); err != nil {
				*a.limit = 0
				unread = append(unread, "metadata.annotations["+prefix+a.name+"]: "+quote(text)+" is no number up to 4294967295, and bounds nothing")
			}
		}
	}
	if l == (model.BackendLimits{}) {
		return nil, unread
	}
	return &l, unread
}

// upstreams are what a Service's annotations say of its ports, by their names and numbers.
type upstreams map[string]string

// upstreamsOf reads them once: there may be very many, of very many ports.
func upstreamsOf(annotations map[string]string) upstreams {
	said := upstreams{}
	for _, protocol := range []string{upstreamH2, upstreamH2C, upstreamTLS} {
		for _, prefix := range upstreamAnnotations {
			for port := range strings.SplitSeq(annotations[prefix+protocol], ",") {
				if port = strings.TrimSpace(port); port != "" {
					said[port] = protocol
				}
			}
		}
	}
	return said
}

// of is what is said of a port: by its name, else by its number.
func (u upstreams) of(name string, number int32) string {
	return cmp.Or(u[name], u[strconv.Itoa(int(number))])
}

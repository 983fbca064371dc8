package contour

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	contourv1beta1 "fairlead.dev/api/contour/v1beta1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/backend"
	"fairlead.dev/internal/translate/certificate"
	"fairlead.dev/internal/translate/field"
)

// maxServices bounds the services of a route, or of a tcpproxy: what is compiled of them is all in one resource,
// which at shared listeners others have a part of.
const maxServices = 128

// fewServices leaves out what is more than a route may have, and says so.
func (c *compiler) fewServices(services []contourv1beta1.Service, path string) []contourv1beta1.Service {
	if len(services) <= maxServices {
		return services
	}
	c.fail(path, strconv.Itoa(len(services))+" are too many: at most "+strconv.Itoa(maxServices))
	return services[:maxServices]
}

// weights are the services' shares: equal when none says one, else those unset
// are 0. Nil when they cannot be.
func (c *compiler) weights(services []contourv1beta1.Service, path string) []uint32 {
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
		if *s.Weight < 0 || *s.Weight > backend.WeightLimit {
			c.fail(field.At(path, i)+".weight", strconv.Itoa(int(*s.Weight))+" must be in the range 0-"+strconv.Itoa(backend.WeightLimit))
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

func (c *compiler) service(s *contourv1beta1.Service, path string) (port backend.Port, ok bool) {
	if s.Name == "" {
		c.fail(path+".name", "must be specified")
		return port, false
	}
	if s.Port < 1 || s.Port > 65535 {
		c.fail(path+".port", "service "+field.Quote(s.Name)+": port must be in the range 1-65535")
		return port, false
	}
	name := snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}
	port, fault, problem := c.t.from.Backend.FindPort(c.ctx, name, s.Port)
	switch fault {
	case backend.Fine:
		if !slices.Contains(c.route.Services, name) {
			c.route.Services = append(c.route.Services, name)
		}
		for _, note := range port.Unread {
			c.route.Notes = append(c.route.Notes, path+".name: Service "+field.Quote(s.Name)+": "+note)
		}
		if port.Undrained != "" {
			c.route.Notes = append(c.route.Notes, path+".name: Service "+field.Quote(s.Name)+": "+port.Undrained)
		}
		if (port.Refusal != "" || port.Misread != "" || port.MetricsNote != "") && !c.noted[s.Name] {
			c.noted[s.Name] = true
			for _, note := range field.NonEmpty(port.Refusal, port.Misread, port.MetricsNote) {
				c.route.Notes = append(c.route.Notes, path+".name: Service "+field.Quote(s.Name)+": "+note)
			}
		}
		return port, true
	case backend.PortMissing, backend.PortProtocol:
		c.fail(path+".port", problem)
	default:
		c.fail(path+".name", problem)
	}
	return port, false
}

// group is the group of a service that was found.
func (c *compiler) group(service string, port backend.Port, o backend.GroupOptions, path string) (model.BackendGroup, bool) {
	group, fault, problem := c.t.from.Backend.MakeGroup(c.ctx, snapshot.Name{Namespace: c.name.Namespace, Name: service}, port, o)
	if fault != backend.Fine {
		c.fail(path+".port", problem)
	}
	return group, fault == backend.Fine
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
func (c *compiler) upstream(s *contourv1beta1.Service, port backend.Port, path string) (model.BackendProtocol, *model.BackendTLS) {
	var protocol model.BackendProtocol
	if port.Upstream == backend.UpstreamH2 || port.Upstream == backend.UpstreamH2C {
		protocol = model.BackendHTTP2
	}
	if s.UpstreamValidation != nil {
		tls := c.validation(s.UpstreamValidation, path+".validation")
		if port.Upstream == backend.UpstreamH2C {
			c.fail(path+".validation", "Service "+field.Quote(s.Name)+" is annotated "+backend.UpstreamAnnotations[0]+backend.UpstreamH2C+", so that its backends speak clear text")
		}
		return protocol, tls
	}
	service := snapshot.Name{Namespace: c.name.Namespace, Name: s.Name}
	if (port.Upstream == backend.UpstreamTLS || port.Upstream == backend.UpstreamH2) && c.t.from.Backend.PolicyOf(c.ctx, service, port.Name) == nil {
		return protocol, &model.BackendTLS{Unverified: true}
	}
	return protocol, nil
}

// validation reads which certificate backends must show; nil when it cannot be told.
func (c *compiler) validation(o *contourv1beta1.UpstreamValidation, path string) *model.BackendTLS {
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
		if u, err := url.Parse(o.SubjectName); err != nil || u.Scheme == "" || !field.Printable(o.SubjectName) {
			fail(".subjectName", field.Quote(o.SubjectName)+" is neither a DNS name nor a URI")
		}
		tls.ServerName, tls.Names = "", []model.AltName{{URI: o.SubjectName}}
	default:
		if problem := field.HostProblem(tls.ServerName, false); problem != "" {
			fail(".subjectName", problem)
		}
	}
	name := snapshot.Name{Namespace: c.name.Namespace, Name: o.CACertificate}
	switch {
	case o.CACertificate == "":
		fail(".caSecret", "must be specified")
	case strings.Contains(o.CACertificate, "/"):
		fail(".caSecret", field.Quote(o.CACertificate)+" must be the name of a Secret in namespace "+name.Namespace)
	default:
		secret := c.t.from.Certificates.Authorities.Get(c.ctx, certificate.AuthorityKey{Kind: snapshot.KindSecret, Name: name})
		if secret.Problem != "" {
			fail(".caSecret", "Secret "+name.String()+" "+secret.Problem)
		} else {
			tls.Authorities = []model.AuthorityID{secret.Authority.ID}
		}
	}
	if !ok {
		return nil
	}
	return tls
}

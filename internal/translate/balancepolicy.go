package translate

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
)

// balancePolicyFact is a LoadBalancerPolicy judged for itself. What cannot be read is left
// out.
type balancePolicyFact struct {
	settings balanceSettings
	invalid  policyVerdict
}

// balanceSettings are what one policy says: the zero value of a field is that it says
// nothing, so that another may.
type balanceSettings struct {
	mode      model.ForwardMode
	plane     model.DataPlaneKind
	hash      *model.FlowHash
	affinity  time.Duration
	check     *model.HealthCheck
	panics    *uint8
	drain     *time.Duration
	sources   []netip.Prefix
	newFlows  uint32
	localOnly *bool
	weights   map[netip.Addr]uint32
	scheduler string
	maxFlows  uint32
	quic      *model.QUICServer
}

// under fills in what a policy leaves out by one of a larger target, and says what of that
// one cannot be together with what is said nearer.
func (s balanceSettings) under(o balanceSettings) (balanceSettings, []string) {
	var unfit []string
	skip := func(path, problem string) {
		unfit = append(unfit, "spec."+path+": "+problem+", as a policy of a nearer target has it")
	}
	plane := o.plane
	switch {
	case s.plane != "" || plane == "":
	case !hasMode(plane, s.mode):
		skip("dataPlane", string(plane)+" has no mode "+string(s.mode))
		plane = ""
	case plane != model.DataPlaneXDP && s.quic != nil:
		skip("dataPlane", string(plane)+" cannot route by QUIC's connection IDs")
		plane = ""
	case plane != model.DataPlaneIPVS && (s.scheduler != "" || s.maxFlows > 0):
		skip("dataPlane", string(plane)+" has no scheduler and does not count flows of backends")
		plane = ""
	case plane == model.DataPlaneIPVS && (len(s.sources) > 0 || s.newFlows > 0):
		skip("dataPlane", "IPVS keeps no client out and does not limit new flows")
		plane = ""
	}
	s.plane = cmp.Or(s.plane, plane)
	if why := s.excludes(model.DataPlaneXDP); why != "" {
		if s.mode == "" && o.mode == model.ModeDSRGeneve {
			skip("mode", "DSRGeneve is for dataPlane XDP, and "+why)
			o.mode = ""
		}
		if s.quic == nil && o.quic != nil {
			skip("quic", "is for dataPlane XDP, and "+why)
			o.quic = nil
		}
		if s.excludes(model.DataPlaneNFTables) != "" {
			if s.sources == nil && len(o.sources) > 0 {
				// They hold all the same: without them clients would get in that nobody wanted.
				skip("sourceRanges", "is for dataPlane XDP and NFTables, and "+why+": no machine balances by both")
			}
			if s.newFlows == 0 && o.newFlows > 0 {
				skip("newFlowsPerSecond", "is for dataPlane XDP and NFTables, and "+why)
				o.newFlows = 0
			}
		}
	}
	if s.mode == "" && s.plane != "" && !hasMode(s.plane, o.mode) && o.mode != "" {
		skip("mode", string(o.mode)+" is not for dataPlane "+string(s.plane))
		o.mode = ""
	}
	if why := s.excludes(model.DataPlaneIPVS); why != "" {
		if s.scheduler == "" && o.scheduler != "" {
			skip("scheduler", "is for dataPlane IPVS, and "+why)
			o.scheduler = ""
		}
		if s.maxFlows == 0 && o.maxFlows > 0 {
			skip("maxFlowsPerBackend", "is for dataPlane IPVS, and "+why)
			o.maxFlows = 0
		}
	}
	s.mode, s.hash = cmp.Or(s.mode, o.mode), cmp.Or(s.hash, o.hash)
	s.affinity, s.check, s.panics, s.drain = cmp.Or(s.affinity, o.affinity), cmp.Or(s.check, o.check), cmp.Or(s.panics, o.panics), cmp.Or(s.drain, o.drain)
	s.newFlows, s.localOnly = cmp.Or(s.newFlows, o.newFlows), cmp.Or(s.localOnly, o.localOnly)
	s.scheduler, s.maxFlows, s.quic = cmp.Or(s.scheduler, o.scheduler), cmp.Or(s.maxFlows, o.maxFlows), cmp.Or(s.quic, o.quic)
	if s.sources == nil {
		s.sources = o.sources
	}
	if s.weights == nil {
		s.weights = o.weights
	}
	return s, unfit
}

// excludes says why no machine balances by that data plane; "" if one may.
func (s balanceSettings) excludes(plane model.DataPlaneKind) string {
	if s.plane != "" && s.plane != plane {
		return "it is " + string(s.plane)
	}
	if plane != model.DataPlaneIPVS {
		if fields := s.ofIPVS(); len(fields) > 0 {
			return fields[0] + " needs IPVS"
		}
		return ""
	}
	switch {
	case s.mode == model.ModeDSRGeneve:
		return "spec.mode " + string(s.mode) + " needs XDP"
	case s.quic != nil:
		return "spec.quic needs XDP"
	case len(s.sources) > 0:
		return "spec.sourceRanges needs XDP or NFTables"
	case s.newFlows > 0:
		return "spec.newFlowsPerSecond needs XDP or NFTables"
	}
	return ""
}

// hasMode says that a data plane forwards in a mode.
func hasMode(plane model.DataPlaneKind, mode model.ForwardMode) bool {
	switch mode {
	case model.ModeDSRGeneve:
		return plane == model.DataPlaneXDP
	case model.ModeDSRIPIP, model.ModeDSRL2:
		return plane != model.DataPlaneNFTables
	}
	return true
}

// ofIPVS are those that only IPVS does.
func (s balanceSettings) ofIPVS() (fields []string) {
	if balancesByIPVS(s.scheduler) {
		fields = append(fields, "spec.scheduler "+s.scheduler)
	}
	if s.maxFlows > 0 {
		fields = append(fields, "spec.maxFlowsPerBackend")
	}
	return fields
}

// balancesByIPVS says that a scheduler chooses as only IPVS does: mh hashes, as the others do.
func balancesByIPVS(scheduler string) bool {
	return scheduler != "" && scheduler != string(v1alpha1.SchedulerMH)
}

// apply gives a frontend its settings. Clients that its owner does not let in stay outside.
func (s balanceSettings) apply(f *model.Frontend) {
	f.Mode, f.DataPlane, f.Hash = s.mode, s.plane, deref(s.hash)
	f.Affinity = cmp.Or(s.affinity, f.Affinity)
	f.Check, f.Panic, f.Drain, f.NewFlows = s.checks(f.Transport, f.Listener != ""), deref(s.panics), deref(s.drain), s.newFlows
	f.Sources = bothSources(f.Sources, s.sources)
	if s.localOnly != nil {
		f.LocalOnly = *s.localOnly
	}
	f.Weights, f.Scheduler, f.MaxFlows, f.QUIC = s.weights, s.scheduler, s.maxFlows, s.quic
}

// checks is how backends are asked at a port of that transport.
func (s balanceSettings) checks(transport model.Transport, proxies bool) *model.HealthCheck {
	switch {
	case s.check != nil && s.check.Kind == model.CheckNone:
		return nil
	case s.check != nil:
		return s.check
	case transport == model.TCP && !proxies:
		return model.PresumedCheck()
	}
	return nil
}

func makeBalancePolicyFact(o *v1alpha1.LoadBalancerPolicy) *balancePolicyFact {
	if o == nil {
		return nil
	}
	var c policyFields
	spec := &o.Spec
	s := balanceSettings{
		mode: oneOf(&c, "spec.mode", model.ForwardMode(spec.Mode), model.ModeLocal, model.ModeNAT, model.ModeDSRGeneve, model.ModeDSRIPIP, model.ModeDSRL2),
		plane: oneOf(&c, "spec.dataPlane", model.DataPlaneKind(spec.DataPlane),
			model.DataPlaneXDP, model.DataPlaneNFTables, model.DataPlaneIPVS),
		scheduler: oneOf(&c, "spec.scheduler", string(spec.Scheduler), string(v1alpha1.SchedulerWLC), string(v1alpha1.SchedulerWRR), string(v1alpha1.SchedulerMH)),
		newFlows:  uint32(number(&c, spec.NewFlowsPerSecond, 1, 100_000_000, "spec.newFlowsPerSecond")),
		maxFlows:  uint32(number(&c, spec.MaxFlowsPerBackend, 1, 1<<31-1, "spec.maxFlowsPerBackend")),
	}
	if hash := oneOf(&c, "spec.hash", spec.Hash, v1alpha1.HashFiveTuple, v1alpha1.HashThreeTuple, v1alpha1.HashSource); hash != "" {
		s.hash = new(model.FlowHash)
		if hash != v1alpha1.HashFiveTuple {
			*s.hash = model.FlowHash(hash)
		}
	}
	if policy := oneOf(&c, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy, v1alpha1.TrafficCluster, v1alpha1.TrafficLocal); policy != "" {
		local := policy == v1alpha1.TrafficLocal
		s.localOnly = &local
	}
	if a := spec.SessionAffinity; a != nil {
		s.affinity = c.duration(a.Timeout, time.Second, 24*time.Hour, defaultAffinity, "spec.sessionAffinity.timeout")
	}
	if spec.PanicThreshold != nil {
		percent := uint8(number(&c, spec.PanicThreshold, 0, 100, "spec.panicThreshold"))
		s.panics = &percent
	}
	if spec.DrainTime != nil {
		drain := c.duration(*spec.DrainTime, time.Second, 24*time.Hour, 0, "spec.drainTime")
		s.drain = &drain
	}
	for i, text := range spec.SourceRanges {
		prefix, ok := parsePrefix(text)
		if !ok {
			c.fail(at("spec.sourceRanges", i), quote(text)+" is neither an address nor a CIDR")
			prefix = nobody // what is left must not be everybody
		}
		s.sources = append(s.sources, prefix)
	}
	s.sources = sortPrefixes(s.sources)
	for i, w := range spec.Weights {
		a, err := parsePlain(w.Address)
		if err != nil {
			c.fail(at("spec.weights", i)+".address", err.Error())
			continue
		}
		if s.weights == nil {
			s.weights = map[netip.Addr]uint32{}
		}
		s.weights[a] = uint32(number(&c, &w.Weight, 0, 10_000, at("spec.weights", i)+".weight"))
	}
	if q := spec.QUIC; q != nil {
		offset, there := int32(1), true
		if q.ServerIDOffset != nil {
			offset = number(&c, q.ServerIDOffset, 0, 15, "spec.quic.serverIDOffset")
			there = offset == *q.ServerIDOffset
		}
		length := number(&c, &q.ServerIDLength, 1, 8, "spec.quic.serverIDLength")
		if offset+length > 20 {
			c.fail("spec.quic", "connection IDs have at most 20 bytes")
		} else if there && length > 0 {
			s.quic = &model.QUICServer{Offset: uint8(offset), Length: uint8(length)}
		}
	}
	if spec.HealthCheck != nil {
		s.check = healthCheck(&c, spec.HealthCheck, "spec.healthCheck")
	}
	if s.plane != "" && s.plane != model.DataPlaneIPVS {
		if s.scheduler != "" {
			c.fail("spec.scheduler", "is for dataPlane IPVS")
			s.scheduler = ""
		}
		if s.maxFlows > 0 {
			c.fail("spec.maxFlowsPerBackend", "is for dataPlane IPVS")
			s.maxFlows = 0
		}
	}
	if s.plane != "" && s.plane != model.DataPlaneXDP {
		if s.quic != nil {
			c.fail("spec.quic", "is for dataPlane XDP")
			s.quic = nil
		}
		if s.mode == model.ModeDSRGeneve {
			c.fail("spec.mode", "DSRGeneve is for dataPlane XDP")
			s.mode = ""
		}
	}
	if s.plane != "" && !hasMode(s.plane, s.mode) {
		c.fail("spec.mode", string(s.mode)+" is for dataPlane XDP and IPVS")
		s.mode = ""
	}
	if s.plane == model.DataPlaneIPVS {
		// The data plane is left out, not the field: others keep out those who are not wanted.
		if len(s.sources) > 0 {
			c.fail("spec.sourceRanges", "is for dataPlane XDP and NFTables")
			s.plane = ""
		}
		if s.newFlows > 0 {
			c.fail("spec.newFlowsPerSecond", "is for dataPlane XDP and NFTables")
			s.plane = ""
		}
	}
	if why := s.excludes(model.DataPlaneIPVS); why != "" && s.plane == "" {
		if balancesByIPVS(s.scheduler) {
			c.fail("spec.scheduler", s.scheduler+" needs IPVS, and "+why+": no machine balances by both")
			s.scheduler = ""
		}
		if s.maxFlows > 0 {
			c.fail("spec.maxFlowsPerBackend", "needs IPVS, and "+why+": no machine balances by both")
			s.maxFlows = 0
		}
	}
	return &balancePolicyFact{settings: s, invalid: c.invalid}
}

// oneOf takes a value of a list; one that is not is left out.
func oneOf[T ~string](c *policyFields, path string, value T, list ...T) T {
	if value == "" || slices.Contains(list, value) {
		return value
	}
	var names []string
	for _, v := range list {
		names = append(names, string(v))
	}
	c.fail(path, quote(string(value))+" must be one of "+strings.Join(names, ", "))
	return ""
}

func healthCheck(c *policyFields, o *v1alpha1.HealthCheck, path string) *model.HealthCheck {
	kinds := map[v1alpha1.CheckType]model.CheckKind{
		v1alpha1.CheckTCP: model.CheckTCP, v1alpha1.CheckTLS: model.CheckTLS, v1alpha1.CheckHTTP: model.CheckHTTP,
		v1alpha1.CheckHTTPS: model.CheckHTTPS, v1alpha1.CheckGRPC: model.CheckGRPC, v1alpha1.CheckGRPCS: model.CheckGRPCS, v1alpha1.CheckUDP: model.CheckUDP,
	}
	if o.Type == v1alpha1.CheckNone {
		return &model.HealthCheck{Kind: model.CheckNone}
	}
	kind, known := kinds[o.Type]
	if !known {
		c.fail(path+".type", quote(string(o.Type))+" must be one of TCP, TLS, HTTP, HTTPS, GRPC, GRPCS, UDP, None")
		return nil
	}
	check := &model.HealthCheck{
		Kind: kind, Port: uint16(number(c, o.Port, 1, 65535, path+".port")), Host: strings.ToLower(o.Host), Service: o.Service,
		Interval: c.duration(o.Interval, 100*time.Millisecond, time.Hour, 2*time.Second, path+".interval"),
		Jitter:   uint8(cmp.Or(number(c, o.JitterPercent, 1, 100, path+".jitterPercent"), 10)),
		Healthy:  uint32(cmp.Or(number(c, o.Rise, 1, 100, path+".rise"), 2)), Unhealthy: uint32(cmp.Or(number(c, o.Fall, 1, 100, path+".fall"), 3)),
		Send: bytes.Clone(o.Send), Expect: bytes.Clone(o.Expect),
	}
	check.Timeout = c.duration(o.Timeout, 10*time.Millisecond, time.Minute, min(time.Second, check.Interval), path+".timeout")
	if check.Timeout > check.Interval {
		c.fail(path+".timeout", check.Timeout.String()+" must not be longer than interval, "+check.Interval.String())
		check.Timeout = check.Interval
	}
	asks := kind == model.CheckHTTP || kind == model.CheckHTTPS
	if asks {
		check.Path = cmp.Or(o.Path, "/")
		if problem := pathTextProblem(check.Path); problem != "" {
			c.fail(path+".path", problem)
			check.Path = "/"
		}
	} else if o.Path != "" || len(o.Codes) > 0 {
		c.fail(path, "path and codes are for types HTTP and HTTPS")
	}
	if check.Host != "" {
		if problem := hostProblem(check.Host, false); problem != "" {
			c.fail(path+".host", problem)
			check.Host = ""
		} else if kind == model.CheckTCP || kind == model.CheckUDP {
			c.fail(path+".host", "is for types HTTP, HTTPS, TLS, GRPC and GRPCS")
			check.Host = ""
		}
	}
	if check.Service != "" && (kind != model.CheckGRPC && kind != model.CheckGRPCS || !printable(check.Service)) {
		c.fail(path+".service", "is for types GRPC and GRPCS, and a name without spaces")
		check.Service = ""
	}
	if asks {
		for i, text := range o.Codes {
			if codes, ok := codeRange(text); ok {
				check.Codes = append(check.Codes, codes)
			} else {
				c.fail(at(path+".codes", i), quote(text)+` is neither a status code nor a range like "200-399"`)
			}
		}
	}
	switch {
	case kind == model.CheckUDP && len(check.Send) == 0:
		c.fail(path+".send", "must be set for type UDP: a server answers only when it is asked")
		return nil
	case kind != model.CheckUDP && len(check.Send)+len(check.Expect) > 0:
		c.fail(path, "send and expect are for type UDP")
		check.Send, check.Expect = nil, nil
	}
	return check
}

// pathTextProblem says why a text cannot be the target of a request, or nothing.
func pathTextProblem(path string) string {
	if !strings.HasPrefix(path, "/") || len(path) > pathLimit || !printable(path) {
		return quote(path) + ` must begin with "/", without spaces and control characters`
	}
	return ""
}

func codeRange(text string) (codes [2]uint16, ok bool) {
	first, last, both := strings.Cut(text, "-")
	if !both {
		last = first
	}
	for i, part := range []string{first, last} {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil || n < 100 || n > 599 {
			return codes, false
		}
		codes[i] = uint16(n)
	}
	return codes, codes[0] <= codes[1]
}

// balanceAnchor is what LoadBalancerPolicies may be attached to.
func balanceAnchor(of model.Object, section gatewayv1.SectionName) policyAnchor {
	return policyAnchor{snapshot.KindLoadBalancerPolicy, of, string(section)}
}

package policy

import (
	"bytes"
	"cmp"
	"net/netip"
	"strconv"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/memo"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/field"
	"fairlead.dev/internal/translate/target"
)

// Balance is a LoadBalancerPolicy judged for itself. What cannot be read is left
// out.
type Balance struct {
	Settings BalanceSettings
	invalid  field.PolicyResult
}

// BalanceSettings are what one policy says: the zero value of a field is that it says
// nothing, so that another may.
type BalanceSettings struct {
	Mode      model.ForwardMode
	Plane     model.DataPlaneKind
	Hash      *model.FlowHash
	affinity  time.Duration
	Check     *model.HealthCheck
	Panics    *uint8
	drain     *time.Duration
	Sources   []netip.Prefix
	newFlows  uint32
	localOnly *bool
	Weights   map[netip.Addr]uint32
	Scheduler string
	maxFlows  uint32
	quic      *model.QUICServer
}

// Under fills in what a policy leaves out by one of a larger target, and says what of that
// one cannot be together with what is said nearer.
func (s BalanceSettings) Under(o BalanceSettings) (BalanceSettings, []string) {
	var unfit []string
	skip := func(path, problem string) {
		unfit = append(unfit, "spec."+path+": "+problem+", as a policy of a nearer target has it")
	}
	plane := o.Plane
	switch {
	case s.Plane != "" || plane == "":
	case !hasMode(plane, s.Mode):
		skip("dataPlane", string(plane)+" has no mode "+string(s.Mode))
		plane = ""
	case plane != model.DataPlaneXDP && s.quic != nil:
		skip("dataPlane", string(plane)+" cannot route by QUIC's connection IDs")
		plane = ""
	case plane != model.DataPlaneIPVS && (s.Scheduler != "" || s.maxFlows > 0):
		skip("dataPlane", string(plane)+" has no scheduler and does not count flows of backends")
		plane = ""
	case plane == model.DataPlaneIPVS && (len(s.Sources) > 0 || s.newFlows > 0):
		skip("dataPlane", "IPVS keeps no client out and does not limit new flows")
		plane = ""
	}
	s.Plane = cmp.Or(s.Plane, plane)
	if why := s.excludes(model.DataPlaneXDP); why != "" {
		if s.Mode == "" && o.Mode == model.ModeDSRGeneve {
			skip("mode", "DSRGeneve is for dataPlane XDP, and "+why)
			o.Mode = ""
		}
		if s.quic == nil && o.quic != nil {
			skip("quic", "is for dataPlane XDP, and "+why)
			o.quic = nil
		}
		if s.excludes(model.DataPlaneNFTables) != "" {
			if s.Sources == nil && len(o.Sources) > 0 {
				// They hold all the same: without them clients would get in that nobody wanted.
				skip("sourceRanges", "is for dataPlane XDP and NFTables, and "+why+": a frontend has one data plane")
			}
			if s.newFlows == 0 && o.newFlows > 0 {
				skip("newFlowsPerSecond", "is for dataPlane XDP and NFTables, and "+why)
				o.newFlows = 0
			}
		}
	}
	if s.Mode == "" && s.Plane != "" && !hasMode(s.Plane, o.Mode) && o.Mode != "" {
		skip("mode", string(o.Mode)+" is not for dataPlane "+string(s.Plane))
		o.Mode = ""
	}
	if why := s.excludes(model.DataPlaneIPVS); why != "" {
		if s.Scheduler == "" && o.Scheduler != "" {
			skip("scheduler", "is for dataPlane IPVS, and "+why)
			o.Scheduler = ""
		}
		if s.maxFlows == 0 && o.maxFlows > 0 {
			skip("maxFlowsPerBackend", "is for dataPlane IPVS, and "+why)
			o.maxFlows = 0
		}
	}
	s.Mode, s.Hash = cmp.Or(s.Mode, o.Mode), cmp.Or(s.Hash, o.Hash)
	s.affinity, s.Check, s.Panics, s.drain = cmp.Or(s.affinity, o.affinity), cmp.Or(s.Check, o.Check), cmp.Or(s.Panics, o.Panics), cmp.Or(s.drain, o.drain)
	s.newFlows, s.localOnly = cmp.Or(s.newFlows, o.newFlows), cmp.Or(s.localOnly, o.localOnly)
	s.Scheduler, s.maxFlows, s.quic = cmp.Or(s.Scheduler, o.Scheduler), cmp.Or(s.maxFlows, o.maxFlows), cmp.Or(s.quic, o.quic)
	if s.Sources == nil {
		s.Sources = o.Sources
	}
	if s.Weights == nil {
		s.Weights = o.Weights
	}
	return s, unfit
}

// excludes says why no machine balances by that data plane; "" if one may.
func (s BalanceSettings) excludes(plane model.DataPlaneKind) string {
	if s.Plane != "" && s.Plane != plane {
		return "it is " + string(s.Plane)
	}
	if plane != model.DataPlaneIPVS {
		if fields := s.OfIPVS(); len(fields) > 0 {
			return fields[0] + " needs IPVS"
		}
		return ""
	}
	switch {
	case s.Mode == model.ModeDSRGeneve:
		return "spec.mode " + string(s.Mode) + " needs XDP"
	case s.quic != nil:
		return "spec.quic needs XDP"
	case len(s.Sources) > 0:
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

// OfIPVS are those that only IPVS does.
func (s BalanceSettings) OfIPVS() (fields []string) {
	if BalancesByIPVS(s.Scheduler) {
		fields = append(fields, "spec.scheduler "+s.Scheduler)
	}
	if s.maxFlows > 0 {
		fields = append(fields, "spec.maxFlowsPerBackend")
	}
	return fields
}

// BalancesByIPVS says that a scheduler chooses as only IPVS does: mh hashes, as the others do.
func BalancesByIPVS(scheduler string) bool {
	return scheduler != "" && scheduler != string(v1alpha1.SchedulerMH)
}

// Apply gives a frontend its settings. Clients that its owner does not let in stay outside.
func (s BalanceSettings) Apply(f *model.Frontend) {
	f.Mode, f.DataPlane, f.Hash = s.Mode, s.Plane, field.Deref(s.Hash)
	f.Affinity = cmp.Or(s.affinity, f.Affinity)
	f.Check, f.Panic, f.Drain, f.NewFlows = s.Checks(f.Transport, f.Listener != ""), field.Deref(s.Panics), field.Deref(s.drain), s.newFlows
	f.Sources = address.BothSources(f.Sources, s.Sources)
	if s.localOnly != nil {
		f.LocalOnly = *s.localOnly
	}
	f.Weights, f.Scheduler, f.MaxFlows, f.QUIC = s.Weights, s.Scheduler, s.maxFlows, s.quic
}

// Checks is how backends are asked at a port of that transport.
func (s BalanceSettings) Checks(transport model.Transport, proxies bool) *model.HealthCheck {
	switch {
	case s.Check != nil && s.Check.Kind == model.CheckNone:
		return nil
	case s.Check != nil:
		return s.Check
	case transport == model.TCP && !proxies:
		return model.PresumedCheck()
	}
	return nil
}

func newBalance(o *v1alpha1.LoadBalancerPolicy) *Balance {
	if o == nil {
		return nil
	}
	var c field.Policy
	spec := &o.Spec
	s := BalanceSettings{
		Mode: field.OneOf(&c, "spec.mode", model.ForwardMode(spec.Mode), model.ModeLocal, model.ModeNAT, model.ModeDSRGeneve, model.ModeDSRIPIP, model.ModeDSRL2),
		Plane: field.OneOf(&c, "spec.dataPlane", model.DataPlaneKind(spec.DataPlane),
			model.DataPlaneXDP, model.DataPlaneNFTables, model.DataPlaneIPVS),
		Scheduler: field.OneOf(&c, "spec.scheduler", string(spec.Scheduler), string(v1alpha1.SchedulerWLC), string(v1alpha1.SchedulerWRR), string(v1alpha1.SchedulerMH)),
		newFlows:  uint32(field.Number(&c, spec.NewFlowsPerSecond, 1, 100_000_000, "spec.newFlowsPerSecond")),
		maxFlows:  uint32(field.Number(&c, spec.MaxFlowsPerBackend, 1, 1<<31-1, "spec.maxFlowsPerBackend")),
	}
	if hash := field.OneOf(&c, "spec.hash", spec.Hash, v1alpha1.HashFiveTuple, v1alpha1.HashThreeTuple, v1alpha1.HashSource); hash != "" {
		s.Hash = new(model.FlowHash)
		if hash != v1alpha1.HashFiveTuple {
			*s.Hash = model.FlowHash(hash)
		}
	}
	if policy := field.OneOf(&c, "spec.externalTrafficPolicy", spec.ExternalTrafficPolicy, v1alpha1.TrafficCluster, v1alpha1.TrafficLocal); policy != "" {
		local := policy == v1alpha1.TrafficLocal
		s.localOnly = &local
	}
	if a := spec.SessionAffinity; a != nil {
		s.affinity = c.Duration(a.Timeout, time.Second, 24*time.Hour, DefaultAffinity, "spec.sessionAffinity.timeout")
	}
	if spec.PanicThreshold != nil {
		percent := uint8(field.Number(&c, spec.PanicThreshold, 0, 100, "spec.panicThreshold"))
		s.Panics = &percent
	}
	if spec.DrainTime != nil {
		drain := c.Duration(*spec.DrainTime, time.Second, 24*time.Hour, 0, "spec.drainTime")
		s.drain = &drain
	}
	for i, text := range spec.SourceRanges {
		prefix, ok := address.ParsePrefix(text)
		if !ok {
			c.Fail(field.At("spec.sourceRanges", i), field.Quote(text)+" is neither an address nor a CIDR")
			prefix = address.Nobody // what is left must not be everybody
		}
		s.Sources = append(s.Sources, prefix)
	}
	s.Sources = address.SortPrefixes(s.Sources)
	for i, w := range spec.Weights {
		a, err := address.ParsePlain(w.Address)
		if err != nil {
			c.Fail(field.At("spec.weights", i)+".address", err.Error())
			continue
		}
		if s.Weights == nil {
			s.Weights = map[netip.Addr]uint32{}
		}
		s.Weights[a] = uint32(field.Number(&c, &w.Weight, 0, 10_000, field.At("spec.weights", i)+".weight"))
	}
	if q := spec.QUIC; q != nil {
		offset, there := int32(1), true
		if q.ServerIDOffset != nil {
			offset = field.Number(&c, q.ServerIDOffset, 0, 15, "spec.quic.serverIDOffset")
			there = offset == *q.ServerIDOffset
		}
		length := field.Number(&c, &q.ServerIDLength, 1, 8, "spec.quic.serverIDLength")
		if offset+length > 20 {
			c.Fail("spec.quic", "connection IDs have at most 20 bytes")
		} else if there && length > 0 {
			s.quic = &model.QUICServer{Offset: uint8(offset), Length: uint8(length)}
		}
	}
	if spec.HealthCheck != nil {
		s.Check = healthCheck(&c, spec.HealthCheck, "spec.healthCheck")
	}
	if s.Plane != "" && s.Plane != model.DataPlaneIPVS {
		if s.Scheduler != "" {
			c.Fail("spec.scheduler", "is for dataPlane IPVS")
			s.Scheduler = ""
		}
		if s.maxFlows > 0 {
			c.Fail("spec.maxFlowsPerBackend", "is for dataPlane IPVS")
			s.maxFlows = 0
		}
	}
	if s.Plane != "" && s.Plane != model.DataPlaneXDP {
		if s.quic != nil {
			c.Fail("spec.quic", "is for dataPlane XDP")
			s.quic = nil
		}
		if s.Mode == model.ModeDSRGeneve {
			c.Fail("spec.mode", "DSRGeneve is for dataPlane XDP")
			s.Mode = ""
		}
	}
	if s.Plane != "" && !hasMode(s.Plane, s.Mode) {
		c.Fail("spec.mode", string(s.Mode)+" is for dataPlane XDP and IPVS")
		s.Mode = ""
	}
	if s.Plane == model.DataPlaneIPVS {
		// The data plane is left out, not the field: others keep out those who are not wanted.
		if len(s.Sources) > 0 {
			c.Fail("spec.sourceRanges", "is for dataPlane XDP and NFTables")
			s.Plane = ""
		}
		if s.newFlows > 0 {
			c.Fail("spec.newFlowsPerSecond", "is for dataPlane XDP and NFTables")
			s.Plane = ""
		}
	}
	if why := s.excludes(model.DataPlaneIPVS); why != "" && s.Plane == "" {
		if BalancesByIPVS(s.Scheduler) {
			c.Fail("spec.scheduler", s.Scheduler+" needs IPVS, and "+why+": a frontend has one data plane")
			s.Scheduler = ""
		}
		if s.maxFlows > 0 {
			c.Fail("spec.maxFlowsPerBackend", "needs IPVS, and "+why+": a frontend has one data plane")
			s.maxFlows = 0
		}
	}
	return &Balance{Settings: s, invalid: c.Invalid}
}

func healthCheck(c *field.Policy, o *v1alpha1.HealthCheck, path string) *model.HealthCheck {
	kinds := map[v1alpha1.CheckType]model.CheckKind{
		v1alpha1.CheckTCP: model.CheckTCP, v1alpha1.CheckTLS: model.CheckTLS, v1alpha1.CheckHTTP: model.CheckHTTP,
		v1alpha1.CheckHTTPS: model.CheckHTTPS, v1alpha1.CheckGRPC: model.CheckGRPC, v1alpha1.CheckGRPCS: model.CheckGRPCS, v1alpha1.CheckUDP: model.CheckUDP,
	}
	if o.Type == v1alpha1.CheckNone {
		return &model.HealthCheck{Kind: model.CheckNone}
	}
	kind, known := kinds[o.Type]
	if !known {
		c.Fail(path+".type", field.Quote(string(o.Type))+" must be one of TCP, TLS, HTTP, HTTPS, GRPC, GRPCS, UDP, None")
		return nil
	}
	check := &model.HealthCheck{
		Kind: kind, Port: uint16(field.Number(c, o.Port, 1, 65535, path+".port")), Host: strings.ToLower(o.Host), Service: o.Service,
		Interval: c.Duration(o.Interval, 100*time.Millisecond, time.Hour, 2*time.Second, path+".interval"),
		Jitter:   uint8(cmp.Or(field.Number(c, o.JitterPercent, 1, 100, path+".jitterPercent"), 10)),
		Healthy:  uint32(cmp.Or(field.Number(c, o.Rise, 1, 100, path+".rise"), 2)), Unhealthy: uint32(cmp.Or(field.Number(c, o.Fall, 1, 100, path+".fall"), 3)),
		Send: bytes.Clone(o.Send), Expect: bytes.Clone(o.Expect),
	}
	check.Timeout = c.Duration(o.Timeout, 10*time.Millisecond, time.Minute, min(time.Second, check.Interval), path+".timeout")
	if check.Timeout > check.Interval {
		c.Fail(path+".timeout", check.Timeout.String()+" must not be longer than interval, "+check.Interval.String())
		check.Timeout = check.Interval
	}
	asks := kind == model.CheckHTTP || kind == model.CheckHTTPS
	if asks {
		check.Path = cmp.Or(o.Path, "/")
		if problem := pathTextProblem(check.Path); problem != "" {
			c.Fail(path+".path", problem)
			check.Path = "/"
		}
	} else if o.Path != "" || len(o.Codes) > 0 {
		c.Fail(path, "path and codes are for types HTTP and HTTPS")
	}
	if check.Host != "" {
		if problem := field.HostProblem(check.Host, false); problem != "" {
			c.Fail(path+".host", problem)
			check.Host = ""
		} else if kind == model.CheckTCP || kind == model.CheckUDP {
			c.Fail(path+".host", "is for types HTTP, HTTPS, TLS, GRPC and GRPCS")
			check.Host = ""
		}
	}
	if check.Service != "" && (kind != model.CheckGRPC && kind != model.CheckGRPCS || !field.Printable(check.Service)) {
		c.Fail(path+".service", "is for types GRPC and GRPCS, and a name without spaces")
		check.Service = ""
	}
	if asks {
		for i, text := range o.Codes {
			if codes, ok := codeRange(text); ok {
				check.Codes = append(check.Codes, codes)
			} else {
				c.Fail(field.At(path+".codes", i), field.Quote(text)+` is neither a status code nor a range like "200-399"`)
			}
		}
	}
	switch {
	case kind == model.CheckUDP && len(check.Send) == 0:
		c.Fail(path+".send", "must be set for type UDP: a server answers only when it is asked")
		return nil
	case kind != model.CheckUDP && len(check.Send)+len(check.Expect) > 0:
		c.Fail(path, "send and expect are for type UDP")
		check.Send, check.Expect = nil, nil
	}
	return check
}

// pathTextProblem says why a text cannot be the target of a request, or nothing.
func pathTextProblem(path string) string {
	if !strings.HasPrefix(path, "/") || len(path) > field.PathLimit || !field.Printable(path) {
		return field.Quote(path) + ` must begin with "/", without spaces and control characters`
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

// BalanceAnchor is what LoadBalancerPolicies may be attached to.
func BalanceAnchor(of model.Object, section gatewayv1.SectionName) target.Ref {
	return target.Ref{Kind: snapshot.KindLoadBalancerPolicy, Object: of, Section: string(section)}
}

// DefaultAffinity is how long the API server keeps a client at its backend where
// sessionAffinityConfig does not say.
const DefaultAffinity = 3 * time.Hour

func (t *Tables) balanceOutcome(c *memo.Context, n snapshot.Name) (values, references field.PolicyResult) {
	return t.Balance.Get(c, n).invalid, references
}

package policy

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/tap"
	"fairlead.dev/internal/translate/field"
)

const (
	// maxTemplate bounds a template, bytes, and maxLogParts its fields and the texts between them.
	maxTemplate = 2048
	maxLogParts = 100
)

func (c *policyCompiler) accessLog(o *v1alpha1.AccessLog, path string) (*model.AccessLog, *model.BackendGroup) {
	log := &model.AccessLog{Errors: o.ErrorsOnly}
	if o.SamplePercent != nil {
		percent, ok := c.percent(o.SamplePercent, path+".samplePercent")
		switch {
		case !ok:
		case o.ErrorsOnly:
			c.Fail(path+".samplePercent", "errorsOnly means samplePercent 0: leave out one of them")
		case percent == 0:
			log.Errors = true
		case percent < 100:
			log.Percent = percent
		}
	}
	known := v1alpha1.AccessLogFields()
	for i, accessLogField := range o.Fields {
		if !slices.Contains(known, accessLogField) {
			c.Fail(field.At(path+".fields", i), field.Quote(string(accessLogField))+" is not a field of access logs")
			continue
		}
		log.Fields = append(log.Fields, string(accessLogField))
	}
	slices.Sort(log.Fields)
	log.Fields = slices.Compact(log.Fields)
	if o.Template != "" {
		parts, problem := logTemplate(o.Template)
		switch {
		case problem != "":
			c.Fail(path+".template", problem)
		case len(o.Fields) > 0 || o.Destination == v1alpha1.LogOTLP:
			c.Fail(path+".template", "is for destination File, and replaces fields")
		default:
			log.Template = parts
		}
	}
	switch o.Destination {
	case "", v1alpha1.LogFile:
	case v1alpha1.LogOff:
		log = &model.AccessLog{Off: true}
	case v1alpha1.LogOTLP:
		if o.Collector == nil {
			c.Fail(path+".collector", "must be set with destination OTLP")
			return nil, nil
		}
		group, ok := c.service(o.Collector, model.BackendHTTP2, path+".collector")
		if !ok {
			return nil, nil
		}
		log.Collector = group.ID
		return log, &group
	default:
		c.Fail(path+".destination", field.Quote(string(o.Destination))+" must be File, OTLP or Off")
		return nil, nil
	}
	if o.Collector != nil {
		c.Fail(path+".collector", "is for destination OTLP: set destination, or leave collector out")
	}
	return log, nil
}

// logShare reads which requests of a route are logged. Without a valid choice the listener's counts.
func (c *policyCompiler) logShare(o *v1alpha1.RouteAccessLog, path string) *model.LogShare {
	if (o.Requests == "") == (o.SamplePercent == nil) {
		c.Fail(path, "set either requests or samplePercent")
		return nil
	}
	switch o.Requests {
	case "":
		if percent, ok := c.percent(o.SamplePercent, path+".samplePercent"); ok {
			return &model.LogShare{Percent: percent}
		}
		return nil
	case v1alpha1.LogAll:
		return &model.LogShare{Percent: 100}
	case v1alpha1.LogErrors:
		return &model.LogShare{}
	case v1alpha1.LogNone:
		return &model.LogShare{None: true}
	}
	c.Fail(path+".requests", field.Quote(string(o.Requests))+" must be All, Errors or None")
	return nil
}

// percent reads a number from 0 to 100, which may be a text.
func (c *policyCompiler) percent(o *intstr.IntOrString, path string) (float64, bool) {
	percent, err := float64(o.IntVal), error(nil)
	if o.Type == intstr.String {
		percent, err = strconv.ParseFloat(o.StrVal, 64)
	}
	if err != nil || !(percent >= 0 && percent <= 100) {
		c.Fail(path, field.Quote(o.String())+" must be a number from 0 to 100")
		return 0, false
	}
	return percent, true
}

// logTemplate splits a template into texts, fields and headers, or says what is wrong with it.
func logTemplate(template string) (parts []model.LogPart, problem string) {
	if len(template) > maxTemplate {
		return nil, "must have at most " + strconv.Itoa(maxTemplate) + " bytes"
	}
	for _, c := range template {
		if c != '\t' && (c < ' ' || c > '~') {
			return nil, "must have printable characters of ASCII and tabs only; a line ends by itself"
		}
	}
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			parts = append(parts, model.LogPart{Text: text.String()})
			text.Reset()
		}
	}
	for rest := template; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			text.WriteString(rest)
			break
		}
		text.WriteString(rest[:i])
		brace := rest[i]
		rest = rest[i+1:]
		if rest != "" && rest[0] == brace {
			text.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		name, after, closed := strings.Cut(rest, "}")
		switch {
		case brace == '}':
			return nil, `has a "}" without "{": write "}}" for a brace`
		case !closed:
			return nil, `has a "{" without "}": write "{{" for a brace`
		}
		part, problem := logPart(name)
		if problem != "" {
			return nil, problem
		}
		flush()
		parts = append(parts, part)
		rest = after
	}
	flush()
	if len(parts) > maxLogParts {
		return nil, "must have at most " + strconv.Itoa(maxLogParts) + " fields and texts between them"
	}
	return parts, ""
}

// logPart reads what stands between braces.
func logPart(name string) (p model.LogPart, problem string) {
	of, header, is := strings.Cut(name, ".")
	header = strings.ToLower(header)
	switch {
	case slices.Contains(v1alpha1.AccessLogFields(), v1alpha1.AccessLogField(name)):
		return model.LogPart{Field: name}, ""
	case !is || of != "request" && of != "response":
		return p, field.Quote(name) + " is neither a field of access logs nor {request.HEADER} or {response.HEADER}"
	case !field.IsToken(header):
		return p, field.Quote(header) + " is not a valid header name"
	case tap.IsCredential(header):
		return p, field.Quote(header) + " can hold credentials, which access logs must not have"
	case of == "request":
		return model.LogPart{Request: header}, ""
	}
	return model.LogPart{Response: header}, ""
}

package route

import (
	"slices"
	"strconv"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// valueLimit bounds the values of headers and parameters, as the Gateway API does
// for headers.
const valueLimit = 4096

// appendValue adds a condition. Of several for one name the first counts.
func (c *compiler) appendValue(list []model.ValueMatch, name, value, kind, path string) []model.ValueMatch {
	switch {
	case kind == "RegularExpression":
		if problem := c.regexProblem(value); problem != "" {
			c.refuse(path+".value", problem)
		}
	case kind != "" && kind != "Exact":
		c.refuse(path+".type", field.Quote(kind)+" is unknown")
	case !field.IsFieldValue(value):
		c.refuse(path+".value", field.Quote(value)+" must not have control characters")
	case len(value) > valueLimit:
		c.refuse(path+".value", "longer than "+strconv.Itoa(valueLimit)+" characters")
	}
	if slices.ContainsFunc(list, func(v model.ValueMatch) bool { return v.Name == name }) {
		return list
	}
	return append(list, model.ValueMatch{Name: name, Value: value, Regex: kind == "RegularExpression"})
}

// regexProblem judges an expression once in a route, and not more of them than the plane has time for.
func (c *compiler) regexProblem(expression string) string {
	if problem, known := c.regexes[expression]; known {
		return problem
	}
	classes := field.ClassesOf(expression)
	switch {
	case c.ofRegex+len(expression) > field.RegexesLimit:
		return "the regular expressions of the route are longer than " + strconv.Itoa(field.RegexesLimit) + " bytes together: give it to several routes"
	case classes > 0 && c.ofClasses+classes > field.RegexClassesOfRoute:
		return "the regular expressions of the route have more than " + strconv.Itoa(field.RegexClassesOfRoute) + ` classes like \pL together: give it to several routes`
	}
	c.ofRegex, c.ofClasses = c.ofRegex+len(expression), c.ofClasses+classes
	if c.regexes == nil {
		c.regexes = map[string]string{}
	}
	c.regexes[expression] = field.RegexProblem(expression)
	return c.regexes[expression]
}

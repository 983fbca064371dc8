package translate

import (
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// regexLimit bounds the instructions of a compiled expression. Proxies refuse
// large ones; this keeps out what could never pass.
const regexLimit = 1000

// regexProblem says why a text is no RE2 expression, or nothing. RE2 knows fewer names of classes than Go.
func regexProblem(expression string) string {
	if len(expression) > valueLimit || !utf8.ValidString(expression) {
		return "no RE2 expression: too long or not UTF-8"
	}
	bad := func(err error) string {
		return quote(expression) + " is no RE2 expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return bad(err)
	}
	if name := strangeClass(expression); name != "" {
		return quote(expression) + " is no RE2 expression: invalid character class range: " + quote(name)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return bad(err)
	}
	if len(program.Inst) > regexLimit {
		return quote(expression) + " is too large an expression"
	}
	return ""
}

// strangeClass is the first class of an expression whose name RE2 does not know; empty when there is none. The names
// are those of one or two letters of the general categories, those of scripts, and Any.
func strangeClass(expression string) string {
	for i := 0; i+2 < len(expression); i++ {
		if expression[i] != '\\' {
			continue
		}
		i++
		if expression[i] != 'p' && expression[i] != 'P' || expression[i+1] != '{' {
			continue
		}
		name, _, closed := strings.Cut(expression[i+2:], "}")
		if !closed {
			continue
		}
		name = strings.TrimPrefix(name, "^")
		if _, category := unicode.Categories[name]; category && len(name) <= 2 || name == "Any" {
			continue
		}
		if _, script := unicode.Scripts[name]; !script {
			return expression[i-1:i+2] + name + "}"
		}
	}
	return ""
}

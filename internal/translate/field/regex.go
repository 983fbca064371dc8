package field

import (
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// regexLimit bounds the weight of an expression: about how many instructions RE2 compiles it to; loops can
// make it twice as many. Proxies refuse more than 4,096 (xds.Bootstrap), and with it the host and all who have
// routes there: what passes here passes there.
const regexLimit = 1000

// What an expression may cost to be judged: the plane does nothing else meanwhile.
// Each \p is a table of some hundred ranges, and repeats multiply before anything is counted.
const (
	regexLength  = 2048
	regexClassed = 8
	regexTree    = 4 * regexLimit
	// RegexClassesOfRoute is how many \p the expressions of a route may have together.
	RegexClassesOfRoute = 64
	// RegexesLimit is how many bytes the expressions of a route may have together, each counted once.
	RegexesLimit = 64 << 10
)

// RegexProblem says why a text is not a valid RE2 expression, or nothing. RE2 knows fewer names of classes than Go.
func RegexProblem(expression string) string {
	switch {
	case !utf8.ValidString(expression):
		return "no RE2 expression: not UTF-8"
	case len(expression) > regexLength:
		return "no RE2 expression: longer than " + strconv.Itoa(regexLength) + " bytes"
	case ClassesOf(expression) > regexClassed:
		return Quote(expression) + ` has more than ` + strconv.Itoa(regexClassed) + ` classes like \pL or \p{Greek}`
	}
	if escape := wideEscape(expression); escape != "" {
		return Quote(expression) + " matches bytes, and " + escape + " is none: write the character itself"
	}
	tooLarge := func(weight int) string {
		return Quote(expression) + " is too large an expression: it compiles to some " + strconv.Itoa(weight) + " instructions, of " + strconv.Itoa(regexLimit) + " that may be"
	}
	bad := func(err error) string {
		if original := parseRegex(expression); original != nil { // in the words of what was written
			err = original
		}
		return Quote(expression) + " is not a valid RE2 expression: " + strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	}
	parsed, err := syntax.Parse(asBytes(expression), syntax.Perl)
	if err != nil {
		return bad(err)
	}
	if name := strangeClass(expression); name != "" {
		return Quote(expression) + " is not a valid RE2 expression: invalid character class range: " + Quote(name)
	}
	if weight := treeWeight(parsed); weight > regexTree {
		return tooLarge(weight)
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return bad(err)
	}
	weight := 0
	for i := range program.Inst {
		weight += regexWeight(&program.Inst[i])
	}
	if weight > regexLimit {
		return tooLarge(weight)
	}
	return ""
}

// ClassesOf is how many tables of Unicode an expression names, at most.
func ClassesOf(expression string) int {
	return strings.Count(expression, `\p`) + strings.Count(expression, `\P`)
}

// treeWeight is about how many instructions a parsed expression has, or far more than there may be.
func treeWeight(re *syntax.Regexp) int {
	const far = 1 << 20
	weight := 1
	switch re.Op {
	case syntax.OpLiteral:
		weight = len(re.Rune)
	case syntax.OpCharClass:
		weight = regexWeight(&syntax.Inst{Op: syntax.InstRune, Rune: re.Rune})
	default:
		for _, sub := range re.Sub {
			weight += treeWeight(sub)
		}
	}
	if re.Op == syntax.OpRepeat {
		weight *= max(re.Min+1, re.Max, 1)
	}
	return min(weight, far)
}

// regexWeight is how many instructions RE2 has for one of Go's, or a few more. It has one for each range
// of bytes of a class.
func regexWeight(in *syntax.Inst) int {
	switch {
	case in.Op == syntax.InstRuneAnyNotNL:
		return 2
	case in.Op != syntax.InstRune && in.Op != syntax.InstRune1:
		return 1
	case len(in.Rune) == 1 && syntax.Flags(in.Arg)&syntax.FoldCase != 0:
		return 2
	}
	ranges := 0
	for i := 0; i+1 < len(in.Rune); i += 2 {
		if in.Rune[i] <= unicode.MaxLatin1 {
			ranges++
		}
	}
	return max(ranges, 1)
}

// wideEscape is the first code point of an expression that is written as a number and is no byte; empty
// when there is none.
func wideEscape(expression string) string {
	for i := 0; i+3 < len(expression); i++ {
		if expression[i] != '\\' {
			continue
		}
		i++
		if expression[i] != 'x' || expression[i+1] != '{' {
			continue
		}
		digits, _, closed := strings.Cut(expression[i+2:], "}")
		if n, err := strconv.ParseUint(digits, 16, 32); closed && err == nil && n > unicode.MaxLatin1 {
			return expression[i-1:i+2] + digits + "}"
		}
	}
	return ""
}

// asBytes has a code point for each byte of an expression: Envoy's RE2 reads the text of expressions, and
// of requests, as Latin-1.
func asBytes(expression string) string {
	runes := make([]rune, len(expression))
	for i := range len(expression) {
		runes[i] = rune(expression[i])
	}
	return string(runes)
}

func parseRegex(expression string) error {
	_, err := syntax.Parse(expression, syntax.Perl)
	return err
}

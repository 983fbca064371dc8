package cloud

import "regexp"

// yamlLine is how errors of YAML begin that name a line.
var yamlLine = regexp.MustCompile(`^(?:error converting YAML to JSON: )?yaml: line ([0-9]{1,7}): `)

// SeeLine refers to the line that an error of YAML names, if it names one. The rest of the error may quote a secret,
// such as a password that begins with "*" and has no quotes.
func SeeLine(err error) string {
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		return ": see line " + m[1]
	}
	return ""
}

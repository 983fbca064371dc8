// Package field validates single fields: names, durations, regular expressions, annotations. It says
// in messages which field is meant.
//
// Files in reading order: policy.go (fields of policies), regex.go, regexclass.go, slashes.go,
// name.go, annotation.go, value.go.
package field

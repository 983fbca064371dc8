// Package field validates single fields: names, durations, regular expressions, annotations. It says
// in messages which field is meant.
package field

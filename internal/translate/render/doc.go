// Package render writes a whole result for people.
package render

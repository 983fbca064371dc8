// Package render writes a whole result as text for people, the same bytes for the same result.
// Golden files and "fairlead translate" show it.
package render

// Package target knows which policy holds for which target.
package target
